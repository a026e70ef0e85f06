//! Runs rows and records their verdicts.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::target::Target;
use super::weakened::Wall;
use super::{Row, Unexercised};

/// The most characters of a panic message to keep.
const MESSAGE_CHARS_MAX: usize = 1000;

/// The verdict on a row.
#[derive(Debug)]
enum Verdict {
    Held,
    Broken(String),
    NotExercised(String),
}

/// The rows that were run.
#[derive(Debug, Default)]
pub struct Scorecard {
    lines: Vec<(Row, Verdict, Duration)>,
}

impl Scorecard {
    /// Runs the attack, then checks that the service and the host are as before.
    pub fn score(&mut self, row: Row, target: &mut Target) {
        let began = Instant::now();
        eprintln!("{:4} {}", row.id, row.guarantee);
        let attacked = catch_unwind(AssertUnwindSafe(|| (row.attack)(target)));
        let verdict = match attacked {
            Ok(Ok(())) => Verdict::Held,
            Ok(Err(Unexercised(why))) => Verdict::NotExercised(why),
            Err(panic) => Verdict::Broken(message_of(&*panic)),
        };
        let aftermath = catch_unwind(AssertUnwindSafe(|| target.assert_as_before()));
        let verdict = match aftermath {
            Ok(()) => verdict,
            Err(panic) => {
                target.start_over();
                let left = format!("afterwards: {}", message_of(&*panic));
                match verdict {
                    Verdict::Broken(why) => Verdict::Broken(format!("{why}; {left}")),
                    Verdict::Held | Verdict::NotExercised(_) => Verdict::Broken(left),
                }
            }
        };
        self.lines.push((row, verdict, began.elapsed()));
    }

    /// Prints one line per row, then the totals.
    pub fn print(&self) {
        println!("\n{:4}  {:13}  {:>8}  guarantee", "row", "verdict", "seconds");
        for (row, verdict, took) in &self.lines {
            let (word, why) = match verdict {
                Verdict::Held => ("held", ""),
                Verdict::Broken(why) => ("BROKEN", why.as_str()),
                Verdict::NotExercised(why) => ("not exercised", why.as_str()),
            };
            println!("{:4}  {word:13}  {:8.2}  {}", row.id, took.as_secs_f64(), row.guarantee);
            if !why.is_empty() {
                println!("{:31}{}", "", why.replace('\n', &format!("\n{:31}", "")));
            }
        }
        let count = |is: fn(&Verdict) -> bool| {
            self.lines.iter().filter(|(_, verdict, _)| is(verdict)).count()
        };
        println!(
            "{} rows: {} held, {} broken, {} not exercised",
            self.lines.len(),
            count(|verdict| matches!(verdict, Verdict::Held)),
            count(|verdict| matches!(verdict, Verdict::Broken(_))),
            count(|verdict| matches!(verdict, Verdict::NotExercised(_))),
        );
    }

    /// Whether every row held, or with a wall removed, whether every row that needs it broke.
    pub fn is_as_it_should_be(&self, wall: Option<&Wall>) -> bool {
        let Some(wall) = wall else { return self.all_held() };
        let broken: Vec<&str> = self.lines.iter().filter_map(broken_id).collect();
        let stood: Vec<&String> =
            wall.breaks().iter().filter(|id| !broken.contains(&id.as_str())).collect();
        if stood.is_empty() {
            println!("without {}: {} broke, as they must", wall.name, wall.breaks().join(", "));
        } else {
            println!("without {}: held all the same, so they prove nothing: {stood:?}", wall.name);
        }
        stood.is_empty()
    }

    fn all_held(&self) -> bool {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        !self.lines.is_empty()
            && self.lines.iter().all(|(_, verdict, _)| match verdict {
                Verdict::Held => true,
                Verdict::Broken(_) => false,
                Verdict::NotExercised(_) => !required,
            })
    }
}

fn broken_id((row, verdict, _): &(Row, Verdict, Duration)) -> Option<&'static str> {
    matches!(verdict, Verdict::Broken(_)).then_some(row.id)
}

/// The message of a panic, truncated: without walls, a run sees much of the host.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}
