//! The plots of BENCHMARKS.md, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::race::Spread;
use crate::report::{Report, what};
use crate::sections::Section;
use crate::ways::Way;

const FONT: &str = "sans-serif";

/// By hand is grey, the attribute is blue.
fn colour(way: Way) -> RGBColor {
    match way {
        Way::ByHandPinging => RGBColor(190, 190, 190),
        Way::ByHand | Way::Part(_) => RGBColor(120, 120, 120),
        Way::ByHandPurgeable => RGBColor(175, 160, 125),
        Way::Pinging => RGBColor(140, 190, 235),
        Way::Attribute => RGBColor(30, 110, 190),
        Way::Cached => RGBColor(20, 60, 110),
    }
}

pub(crate) fn draw(report: &Report, folder: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    for (section, title) in [
        (Section::Fresh, "Fresh messages a second, × the lines by hand"),
        (Section::Duplicates, "Duplicates a second, × the lines by hand"),
        (Section::Batches, "Messages a second in batches, × a batch by hand"),
        (Section::Distance, "Fresh messages a second, 1 ms to the database each way, × the lines by hand"),
    ] {
        bars(report, section, title, folder)?;
    }
    Ok(())
}

/// Groups of bars, one for each way, with their quartiles.
fn bars(report: &Report, section: Section, title: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let entries: Vec<_> = report.entries.iter().filter(|entry| entry.section == section).collect();
    let (Some(first), Some(name)) = (entries.first(), section.plot()) else { return Ok(()) };
    // Of a cache that asks nobody, only that it is beyond the scale.
    let ways: Vec<Way> = first.race.ways().iter().copied().filter(|way| *way != Way::Cached).collect();
    let highest = entries.iter().flat_map(|entry| ways.iter().map(|way| entry.race.ratio(*way, Way::ByHand).high));
    // Room for the legend above the bars.
    let highest = highest.fold(1.0, f64::max) * 1.45;
    let path = folder.join(format!("{name}.svg"));
    let area = SVGBackend::new(&path, (1000, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let groups = entries.len();
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let (width, step) = (groups as f64, 0.8 / ways.len() as f64);
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title} with the ping off (higher is better; whiskers: middle half)"), (FONT, 16))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..width, 0.0..highest)?;
    let labels = entries.iter().map(|entry| [entry.kind.name().to_owned(), what(entry.stream, entry.workers)]);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(WHITE)
        .y_desc("× by hand, ping off")
        .y_label_formatter(&|value| format!("{value:.1}"))
        .label_style((FONT, 13))
        .draw()?;
    // Under the figures.
    chart.draw_series(std::iter::once(PathElement::new(vec![(0.0, 1.0), (width, 1.0)], BLACK.stroke_width(1))))?;
    for (index, way) in ways.iter().enumerate() {
        let paint = colour(*way);
        let mut drawn = Vec::new();
        for (group, entry) in entries.iter().enumerate() {
            let Spread { low, median, high } = entry.race.ratio(*way, Way::ByHand);
            #[expect(clippy::cast_precision_loss, reason = "a handful")]
            let left = group as f64 + 0.1 + index as f64 * step;
            let middle = left + step * 0.45;
            drawn.push((left, middle, low, median, high));
        }
        chart
            .draw_series(drawn.iter().map(|(left, _, _, median, _)| {
                Rectangle::new([(*left, 0.0), (left + step * 0.9, *median)], paint.filled())
            }))?
            .label(way.name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], paint.filled()));
        chart.draw_series(drawn.iter().map(|(_, middle, low, _, high)| {
            PathElement::new(vec![(*middle, *low), (*middle, *high)], BLACK.stroke_width(1))
        }))?;
        chart.draw_series(drawn.iter().map(|(left, _, _, median, high)| {
            Text::new(format!("{median:.2}"), (*left, high + highest * 0.04), (FONT, 12))
        }))?;
    }
    for (group, lines) in labels.enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let (x, y) = chart.backend_coord(&(group as f64 + 0.1, 0.0));
        for (line, offset) in lines.iter().zip([10, 26]) {
            area.draw(&Text::new(line.as_str(), (x, y + offset), (FONT, 12)))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    area.present()?;
    Ok(())
}
