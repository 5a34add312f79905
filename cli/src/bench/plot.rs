//! `bench --plot`: draws the results as an SVG picture with three charts. The first chart shows the decoding speed by the number of slots. The
//! second shows the prefill speed by the length of the prompt. The third shows how much of the device's measured peak speed each test reaches.

use super::report::BenchRecord;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::weights::{NewFile, Readers};

const SIZE: (u32, u32) = (1200, 420);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 98, 30),
    RGBColor(44, 140, 60),
    RGBColor(148, 80, 160),
    RGBColor(110, 110, 110),
    RGBColor(180, 40, 60),
];

const SLOTS: &str = "slots";

/// One chart, with one line of points per label: model, device and, unless the axis shows it, the number of slots. A point is a pair of numbers:
/// the place on the horizontal axis, whose name is `axis`, and the measured value.
struct Chart {
    title: &'static str,
    axis: &'static str,
    lines: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Draws the records that measure only decoding or only prefill. Replaces the file at `path`.
///
/// # Errors
/// `File` if the file cannot be written.
pub fn write(path: &Path, records: &[BenchRecord]) -> Result<()> {
    let mut picture = String::new();
    draw(&mut picture, &charts(records)).map_err(|e| Error::file(format!("cannot draw the results: {e}")).at(path.display()))?;
    let io = |e: std::io::Error| Error::io(e, path);
    let new = NewFile::create(path, Readers::Umask)?;
    new.file().write_all(picture.as_bytes()).map_err(io)?;
    new.finish()
}

fn charts(records: &[BenchRecord]) -> [Chart; 3] {
    let chart = |title, axis, point: &dyn Fn(&BenchRecord) -> Option<(f64, f64)>| {
        let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for record in records {
            if let Some(point) = point(record) {
                // Labels name the slots, unless the horizontal axis shows them.
                let slots = if axis == SLOTS || record.n_batch == 1 { String::new() } else { format!(", {} slots", record.n_batch) };
                lines.entry(format!("{}, {}{slots}", record.model_type, record.gpu_info)).or_default().push(point);
            }
        }
        lines.values_mut().for_each(|line| line.sort_by(|a, b| a.0.total_cmp(&b.0)));
        Chart { title, axis, lines }
    };
    let is_decode = |r: &BenchRecord| r.n_prompt == 0 && r.n_gen > 0;
    let is_prefill = |r: &BenchRecord| r.n_gen == 0 && r.n_prompt > 0;
    [
        chart("Decoding, tokens per second", SLOTS, &|r| is_decode(r).then_some((r.n_batch as f64, r.samples.avg_ts))),
        chart("Prefill, tokens per second", "tokens of the prompt", &|r| is_prefill(r).then_some((r.n_prompt as f64, r.samples.avg_ts))),
        chart("Share of the device's ceiling, %", "tokens of the prompt (0: decoding)", &|r| {
            Some((r.n_prompt as f64, 100.0 * r.wingbeat.share_of_ceiling?))
        }),
    ]
}

type DrawError = Box<dyn std::error::Error>;

fn draw(picture: &mut String, charts: &[Chart]) -> std::result::Result<(), DrawError> {
    let area = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    for (part, chart) in area.split_evenly((1, charts.len())).iter().zip(charts) {
        let points = || chart.lines.values().flatten();
        let (right, top) = points().fold((1.0f64, 1.0f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
        let mut context = ChartBuilder::on(part)
            .caption(chart.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right * 1.05, 0.0..top * 1.15)?;
        let (across, up) = (|x: &f64| format!("{x:.0}"), |y: &f64| if top < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") });
        let mut mesh = context.configure_mesh();
        mesh.x_desc(chart.axis).x_labels(6).y_labels(6).x_label_formatter(&across).y_label_formatter(&up);
        mesh.light_line_style(WHITE).draw()?;
        if chart.lines.is_empty() {
            let middle = (right * 0.3, top * 0.6);
            context.draw_series([Text::new("not measured", middle, ("sans-serif", 14))])?;
            continue;
        }
        for ((label, line), colour) in chart.lines.iter().zip(COLOURS.iter().cycle()) {
            context
                .draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
                .label(label.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
            context.draw_series(line.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        }
        context.configure_series_labels().background_style(WHITE.mix(0.8)).position(SeriesLabelPosition::UpperLeft).draw()?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::{BenchExtra, Samples};
    use crate::report::BuildReport;

    fn record(n_prompt: usize, n_gen: usize, n_batch: usize, share: Option<f64>) -> BenchRecord {
        BenchRecord {
            build_commit: BuildReport::new().commit.unwrap_or("unknown"),
            model_type: "rwkv7 <tiny> f16".into(),
            model_filename: String::new(),
            model_size: 1,
            model_n_params: 1,
            backends: "cpu".into(),
            gpu_info: "cpu".into(),
            n_prompt,
            n_gen,
            n_depth: 0,
            n_batch,
            test_time: 0,
            samples: Samples::new((n_prompt + n_gen) * n_batch, vec![1_000_000]),
            wingbeat: BenchExtra { share_of_ceiling: share, ..BenchExtra::default() },
        }
    }

    #[test]
    fn a_picture_has_a_point_per_test_and_escapes_names() {
        let records = [record(0, 16, 1, Some(0.5)), record(0, 16, 8, None), record(128, 0, 1, Some(0.25)), record(8, 8, 1, None)];
        let mut picture = String::new();
        draw(&mut picture, &charts(&records)).unwrap();
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        assert_eq!(picture.matches("<circle").count(), 2 + 1 + 2);
        assert!(picture.contains("rwkv7 &lt;tiny&gt; f16") && !picture.contains("<tiny>"));
        assert!(!picture.contains("not measured"));
    }

    #[test]
    fn a_chart_without_results_says_so() {
        let mut picture = String::new();
        draw(&mut picture, &charts(&[])).unwrap();
        assert_eq!(picture.matches("not measured").count(), 3);
    }
}
