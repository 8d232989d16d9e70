//! The plots of BENCHMARKS.md, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::coord::CoordTranslate;
use plotters::prelude::*;
use servers::Kind;

use crate::race::{Spread, Stream};
use crate::report::{Report, what};
use crate::sections::Section;
use crate::ways::Way;

const KINDS: [Kind; 3] = [Kind::Postgres, Kind::Mariadb, Kind::Sqlite];
const FONT: &str = "sans-serif";

/// By hand is grey, the attribute is blue.
fn colour(way: Way) -> RGBColor {
    match way {
        Way::ByHandPinging => RGBColor(190, 190, 190),
        Way::ByHand | Way::ByHandPurgeable | Way::Part(_) => RGBColor(120, 120, 120),
        Way::Pinging => RGBColor(140, 190, 235),
        Way::Attribute => RGBColor(30, 110, 190),
        Way::Cached => RGBColor(20, 60, 110),
    }
}

pub(crate) fn draw(report: &Report, folder: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    for (section, title) in [
        (Section::Fresh, "Fresh messages a second, as a multiple of the lines by hand with the pool's ping off"),
        (
            Section::Duplicates,
            "Duplicates a second, as a multiple of the lines by hand (seen cache: no request at all)",
        ),
        (
            Section::Distance,
            "Fresh messages a second with 1 ms to the database each way, as a multiple of by hand, ping off",
        ),
    ] {
        bars(report, section, title, folder)?;
    }
    batches(report, folder)
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
    let area = SVGBackend::new(&path, (900, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let groups = entries.len();
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let (width, step) = (groups as f64, 0.8 / ways.len() as f64);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 17))
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
    chart.draw_series(std::iter::once(PathElement::new(vec![(0.0, 1.0), (width, 1.0)], BLACK.stroke_width(1))))?;
    for (group, lines) in labels.enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let (x, y) = chart.backend_coord(&(group as f64 + 0.1, 0.0));
        for (line, offset) in lines.iter().zip([10, 26]) {
            area.draw(&Text::new(line.as_str(), (x, y + offset), (FONT, 12)))?;
        }
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    area.present()?;
    Ok(())
}

fn legend<'a, 'b: 'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, C>,
    position: SeriesLabelPosition,
) -> Result<(), Box<dyn Error>> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

/// Messages a second by the size of the batch, on logarithmic scales.
fn batches(report: &Report, folder: &Path) -> Result<(), Box<dyn Error>> {
    let points = |kind: Kind, way: Way| -> Vec<(f64, f64)> {
        let single = report.race(kind, Section::Fresh, 1, Stream::Fresh).map(|race| (1.0, race.rate(way).median));
        let batches = [10_u32, 100, 1000].into_iter().filter_map(|size| {
            let race = report.race(kind, Section::Batches, 1, Stream::Batches(size as usize))?;
            Some((f64::from(size), race.rate(way).median))
        });
        single.into_iter().chain(batches).collect()
    };
    let all: Vec<(f64, f64)> =
        KINDS.iter().flat_map(|kind| [points(*kind, Way::ByHand), points(*kind, Way::Attribute)].concat()).collect();
    if all.iter().all(|(size, _)| *size < 2.0) {
        return Ok(());
    }
    let (lowest, highest) =
        all.iter().fold((f64::MAX, 0.0_f64), |(low, high), (_, rate)| (low.min(*rate), high.max(*rate)));
    let path = folder.join("batches.svg");
    let area = SVGBackend::new(&path, (900, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            "Messages a second by the size of the batch, one worker (solid: idempotent, dots: by hand)",
            (FONT, 17),
        )
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(80)
        .build_cartesian_2d((0.9..1200.0_f64).log_scale(), (lowest * 0.7..highest * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("messages in a batch")
        .y_desc("messages a second")
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .light_line_style(WHITE)
        .label_style((FONT, 13))
        .draw()?;
    for (kind, paint) in KINDS.into_iter().zip([RGBColor(30, 110, 190), RGBColor(200, 110, 20), RGBColor(60, 140, 60)])
    {
        let ours = points(kind, Way::Attribute);
        let by_hand = points(kind, Way::ByHand);
        chart
            .draw_series(LineSeries::new(ours.clone(), paint.stroke_width(2)))?
            .label(kind.name())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], paint.stroke_width(2)));
        chart.draw_series(by_hand.into_iter().map(|point| Circle::new(point, 4, paint.stroke_width(1))))?;
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)?;
    area.present()?;
    Ok(())
}
