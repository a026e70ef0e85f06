//! Which chains of layers are attached as trees on the stage. A tree is one mount with a clone of each
//! layer below it, so that all of them are cloned by one call.
//!
//! The path of a layer's clone is its number in the chain, the oldest first: a tree serves each chain that
//! its own begins with, and a longer chain extends it.

/// As many are kept. They hold no layer that nothing else needs, only mounts.
const TREES_MAX: usize = 64;

/// One tree.
#[derive(Debug, Default)]
pub(super) struct ChainTree {
    /// Where it is attached.
    pub(super) place: String,
    /// The layers that are cloned in it, the oldest first.
    pub(super) layers: Vec<String>,
}

/// All trees, the one used last at the end.
#[derive(Debug, Default)]
pub(super) struct ChainTrees(Vec<ChainTree>);

impl ChainTrees {
    /// A tree whose chain begins as `chain` does, as far as the shorter one goes.
    pub(super) fn find(&mut self, chain: &[&str]) -> Option<&mut ChainTree> {
        let agrees =
            |tree: &ChainTree| tree.layers.iter().zip(chain).all(|(one, other)| one == other);
        let trees = self.0.iter().enumerate().filter(|(_, tree)| agrees(tree));
        let (index, _) = trees.max_by_key(|(_, tree)| tree.layers.len())?;
        let found = self.0.remove(index);
        self.0.push(found);
        self.0.last_mut()
    }

    /// Adds an empty tree. Returns the place of one that is to be detached for it, if they are too many.
    pub(super) fn add(&mut self, place: String) -> Option<String> {
        self.0.push(ChainTree { place, layers: Vec::new() });
        let is_full = self.0.len() > TREES_MAX;
        is_full.then(|| self.0.remove(0).place)
    }

    /// The mounts to detach so that no tree has a clone of `layer`: whole trees, and clones of the last
    /// layers of others.
    pub(super) fn forget(&mut self, layer: &str) -> Vec<String> {
        let mut detached = Vec::new();
        self.0.retain_mut(|tree| match tree.layers.iter().position(|known| known == layer) {
            None => true,
            Some(last) if last > 0 && last + 1 == tree.layers.len() => {
                tree.layers.truncate(last);
                detached.push(format!("{}/{last}", tree.place));
                true
            }
            Some(_) => {
                detached.push(std::mem::take(&mut tree.place));
                false
            }
        });
        detached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(trees: &mut ChainTrees, place: &str, layers: &[&str]) -> Option<String> {
        let dropped = trees.add(place.to_owned());
        let tree = trees.find(&[]).unwrap();
        // An empty chain agrees with all; the longest is another one.
        assert!(tree.place == place || !tree.layers.is_empty());
        let added = trees.0.iter_mut().find(|tree| tree.place == place).unwrap();
        added.layers = layers.iter().map(|&layer| layer.to_owned()).collect();
        dropped
    }

    fn found(trees: &mut ChainTrees, chain: &[&str]) -> Option<String> {
        trees.find(chain).map(|tree| tree.place.clone())
    }

    #[test]
    fn a_tree_serves_the_chains_that_it_begins_with_and_those_that_go_on() {
        let mut trees = ChainTrees::default();
        add(&mut trees, "t", &["a", "b", "c"]);
        for chain in [&["a"][..], &["a", "b", "c"], &["a", "b", "c", "d"]] {
            assert_eq!(found(&mut trees, chain), Some("t".to_owned()), "{chain:?}");
        }
        for chain in [&["b"][..], &["a", "c"], &["a", "b", "d", "c"]] {
            assert_eq!(found(&mut trees, chain), None, "{chain:?}");
        }
        add(&mut trees, "short", &["a"]);
        assert_eq!(found(&mut trees, &["a", "b"]), Some("t".to_owned()), "the longest");
    }

    #[test]
    fn no_tree_keeps_a_layer_that_is_forgotten() {
        let mut trees = ChainTrees::default();
        add(&mut trees, "one", &["a", "b", "c"]);
        add(&mut trees, "two", &["a", "c", "d"]);
        add(&mut trees, "three", &["x"]);
        assert_eq!(trees.forget("nothing"), Vec::<String>::new());
        let mut detached = trees.forget("c");
        detached.sort();
        assert_eq!(detached, ["one/2", "two"]);
        assert_eq!(found(&mut trees, &["a", "b", "e"]), Some("one".to_owned()));
        assert_eq!(trees.forget("x"), ["three"], "the only layer of its tree");
        assert_eq!(trees.forget("a"), ["one"]);
        assert_eq!(trees.0.len(), 0);
    }

    #[test]
    fn the_tree_that_was_not_used_for_longest_gives_way() {
        let mut trees = ChainTrees::default();
        for number in 0..TREES_MAX {
            let layer = number.to_string();
            assert_eq!(add(&mut trees, &format!("t{number}"), &[&layer]), None);
        }
        assert_eq!(found(&mut trees, &["0"]), Some("t0".to_owned()));
        let dropped = trees.add("new".to_owned());
        assert_ne!(dropped, Some("t0".to_owned()));
        assert_eq!((dropped.is_some(), trees.0.len()), (true, TREES_MAX));
    }
}
