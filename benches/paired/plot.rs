//! Plots latency against the number of clients as SVG, on two logarithmic axes, for light and dark
//! backgrounds.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
/// The space for the names of the lines.
const RIGHT: f64 = 190.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 60.0;
/// The smallest vertical distance between two names.
const NAME_HEIGHT: f64 = 17.0;

/// Viewers without media queries use the first colours, which suit both backgrounds.
const STYLE: &str = "
  text { font: 13px sans-serif; fill: #57606a }
  .frame { stroke: #57606a; fill: none }
  .grid { stroke: #8b949e; stroke-opacity: 0.3 }
  .line { fill: none; stroke-width: 2 }
  .p99 { stroke-width: 1.2; stroke-dasharray: 4 4 }
  .s0 { stroke: #0969da } .f0 { fill: #0969da }
  .s1 { stroke: #bc4c00 } .f1 { fill: #bc4c00 }
  .s2 { stroke: #6e7781 } .f2 { fill: #6e7781 }
  @media (prefers-color-scheme: dark) {
    text { fill: #c9d1d9 }
    .frame { stroke: #c9d1d9 }
    .s0 { stroke: #58a6ff } .f0 { fill: #58a6ff }
    .s1 { stroke: #f0883e } .f1 { fill: #f0883e }
    .s2 { stroke: #adbac7 } .f2 { fill: #adbac7 }
  }
";

/// One series: a solid line for the median, a dashed one for the 99th percentile.
#[derive(Debug)]
pub struct Series {
    pub name: &'static str,
    pub points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub clients: f64,
    pub median_ms: f64,
    pub p99_ms: f64,
}

/// Maps values to coordinates.
struct Axes {
    clients_max: f64,
    lowest_ms: f64,
    highest_ms: f64,
}

impl Axes {
    /// Bounds at ones, twos and fives of a decade around all points.
    fn around(series: &[Series]) -> Self {
        let points = || series.iter().flat_map(|series| &series.points);
        let lowest = points().map(|point| point.median_ms).fold(f64::INFINITY, f64::min);
        let highest = points().map(|point| point.p99_ms).fold(0.0, f64::max);
        let ticks = ticks();
        let below = ticks.iter().rev().find(|tick| **tick <= lowest);
        let above = ticks.iter().find(|tick| **tick >= highest);
        Self {
            clients_max: points().map(|point| point.clients).fold(2.0, f64::max),
            lowest_ms: *below.unwrap_or(&ticks[0]),
            highest_ms: *above.unwrap_or(&ticks[ticks.len() - 1]),
        }
    }

    fn x(&self, clients: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * clients.log2() / self.clients_max.log2()
    }

    fn y(&self, ms: f64) -> f64 {
        let share = (ms / self.lowest_ms).ln() / (self.highest_ms / self.lowest_ms).ln();
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    }
}

/// 0.1 ms to 50 s.
fn ticks() -> Vec<f64> {
    let decades = [0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0];
    decades.iter().flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * decade)).collect()
}

/// The SVG document.
pub fn latency(series: &[Series]) -> String {
    let axes = Axes::around(series);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>Latency of a run against clients at once</title>\n<style>{STYLE}</style>\n"
    );
    svg += &frame(&axes);
    let ends = name_places(series, &axes);
    for (index, (series, name_y)) in series.iter().zip(ends).enumerate() {
        svg += &line(series, index, name_y, &axes);
    }
    svg + "</svg>\n"
}

fn frame(axes: &Axes) -> String {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut svg = String::new();
    for tick in ticks().into_iter().filter(|t| (axes.lowest_ms..=axes.highest_ms).contains(t)) {
        let y = axes.y(tick);
        writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>").unwrap();
        let (x, y) = (LEFT - 8.0, y + 4.5);
        writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{tick}</text>").unwrap();
    }
    let mut clients = 1.0;
    while clients <= axes.clients_max {
        let (x, y) = (axes.x(clients), bottom + 20.0);
        writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>").unwrap();
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{clients}</text>")
            .unwrap();
        clients *= 2.0;
    }
    writeln!(svg, "<path class=\"frame\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>").unwrap();
    let (middle, below) = (f64::midpoint(LEFT, right), HEIGHT - 18.0);
    writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">clients at once</text>"
    )
    .unwrap();
    let middle = f64::midpoint(TOP, bottom);
    let turned = format!("transform=\"rotate(-90 20 {middle})\" text-anchor=\"middle\"");
    writeln!(svg, "<text x=\"20\" y=\"{middle}\" {turned}>ms until the answer</text>").unwrap();
    let key = "line: median; dashes: 99th percentile";
    writeln!(svg, "<text x=\"{right}\" y=\"18\" text-anchor=\"end\">{key}</text>").unwrap();
    svg
}

/// The position of each name: beside the end of its line, but never over another name.
fn name_places(series: &[Series], axes: &Axes) -> Vec<f64> {
    let end = |series: &Series| series.points.last().map_or(TOP, |point| axes.y(point.median_ms));
    let mut order: Vec<(usize, f64)> = series.iter().map(end).enumerate().collect();
    order.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let mut places = vec![0.0; series.len()];
    let mut free_from = TOP;
    for (index, end) in order {
        places[index] = free_from.max(end);
        free_from = places[index] + NAME_HEIGHT;
    }
    places
}

fn line(series: &Series, index: usize, name_y: f64, axes: &Axes) -> String {
    let path = |value: fn(&Point) -> f64| {
        let points = series.points.iter().enumerate().map(|(at, point)| {
            let start = if at == 0 { 'M' } else { 'L' };
            format!("{start}{:.1} {:.1}", axes.x(point.clients), axes.y(value(point)))
        });
        points.collect::<String>()
    };
    let mut svg = String::new();
    let (median, p99) = (path(|point| point.median_ms), path(|point| point.p99_ms));
    writeln!(svg, "<path class=\"line s{index}\" d=\"{median}\"/>").unwrap();
    writeln!(svg, "<path class=\"line p99 s{index}\" d=\"{p99}\"/>").unwrap();
    for point in &series.points {
        let (x, y) = (axes.x(point.clients), axes.y(point.median_ms));
        writeln!(svg, "<circle class=\"f{index}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>").unwrap();
    }
    let (x, y, name) = (WIDTH - RIGHT + 10.0, name_y + 4.5, series.name);
    writeln!(svg, "<text class=\"f{index}\" x=\"{x}\" y=\"{y:.1}\">{name}</text>").unwrap();
    svg
}
