//! The text format 0.0.4 from that of OpenMetrics, which is nearly the same.

/// `text` in the older format: a counter's family has the name of its samples,
/// and there is no mark at the end.
pub fn from_open_metrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        // The help of a family comes before its type.
        let typed = match line.starts_with("# HELP ") {
            true => lines.peek().copied().unwrap_or_default(),
            false => line,
        };
        let is_counter = typed.starts_with("# TYPE ") && typed.ends_with(" counter");
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", word, name, rest] if is_counter => {
                plain.extend(["# ", word, " ", name, "_total ", rest]);
            }
            _ => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_the_name_of_its_samples_and_all_else_stays() {
        let open = "# HELP runs How many counter\n# TYPE runs counter\nruns_total{a=\"# TYPE x counter\"} 1\n\
                    # HELP open Now.\n# TYPE open gauge\nopen 2\n\
                    # HELP took_seconds So long.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                    took_seconds_sum 0.5\n# EOF\n";
        let plain = "# HELP runs_total How many counter\n# TYPE runs_total counter\nruns_total{a=\"# TYPE x counter\"} 1\n\
                     # HELP open Now.\n# TYPE open gauge\nopen 2\n\
                     # HELP took_seconds So long.\n# TYPE took_seconds histogram\n\
                     took_seconds_sum 0.5\n";
        assert_eq!(from_open_metrics(open), plain);
    }
}
