//! Schedules of triangles: functions of the options and the iteration alone.

use crate::backend::Window;
use crate::config::TrianglesOptions;
use crate::math::splat::PlaceGradients;
use crate::train::span::ImageSpan;

/// Start value of the floor's linear rise.
const FIRST_FLOOR: f64 = 0.1;

/// Number of rises that are skipped after the mesh is connected, while opacities settle.
const SKIPPED_RISES: u32 = 2;

/// Returns the window of image `image` (from 1). The floor has risen over `raised` images.
pub fn window(options: &TrianglesOptions, image: u32, raised: u32) -> Window {
    Window {
        exponent: exponent(options, image),
        opacity_floor: opacity_floor(options, raised),
        samples: samples(options, image),
        strip_px: if options.reference_gradients { 0.0 } else { options.edge_strip },
        gradients: match options.reference_gradients {
            false => PlaceGradients::All,
            true => PlaceGradients::EdgeDistances,
        },
        ..Window::SOLID
    }
}

/// Interpolates linearly from the first to the last exponent.
fn exponent(options: &TrianglesOptions, image: u32) -> f64 {
    let &TrianglesOptions { set_sigma, sigma_final, sigma_start, sigma_until, .. } = options;
    let passed = f64::from(image.saturating_sub(sigma_start));
    let all = f64::from(sigma_until.saturating_sub(sigma_start).max(1));
    let t = (passed / all).min(1.0);
    set_sigma * (1.0 - t) + sigma_final * t
}

fn samples(options: &TrianglesOptions, image: u32) -> u32 {
    if image >= options.last_upsampling {
        options.last_upscaling_factor
    } else if image >= options.start_upsampling {
        options.upscaling_factor
    } else {
        1
    }
}

/// Returns the opacity floor after `done` images and the changes that are due.
pub fn opacity_floor(options: &TrianglesOptions, done: u32) -> f64 {
    let &TrianglesOptions { start_opacity_floor: start, opacity_floor_final: most, .. } = options;
    // The last image after which the floor rose.
    let last = last_multiple(options, done);
    if last <= start {
        return 0.0;
    }
    let all = f64::from(options.final_opacity_iter.saturating_sub(start).max(1));
    let first = FIRST_FLOOR.min(most);
    (first + (most - first) * f64::from(last - start) / all).min(most)
}

/// True if the floor rises after a step.
pub fn rises(options: &TrianglesOptions, span: ImageSpan) -> bool {
    opacity_floor(options, span.before) < opacity_floor(options, span.after)
}

/// Minimum number of passes between two removals of hidden triangles. A removal renders all views.
const PASSES_BETWEEN_REMOVALS: u32 = 4;

/// Returns the minimum number of images between two removals of hidden triangles.
pub fn least_images_between_removals(views: usize) -> u32 {
    let views = u32::try_from(views).unwrap_or(u32::MAX);
    views.saturating_mul(PASSES_BETWEEN_REMOVALS)
}

/// True if hidden triangles are removed after a step: at multiples of the interval since the mesh was connected that
/// leave enough passes between two removals.
pub fn drops_hidden(options: &TrianglesOptions, span: ImageSpan, views: usize) -> bool {
    let &TrianglesOptions { delaunay_iter: connected, hidden_interval: interval, .. } = options;
    if connected == 0 || interval == 0 || span.before < connected {
        return false;
    }
    let intervals = least_images_between_removals(views).div_ceil(interval).max(1);
    let since = ImageSpan { before: span.before - connected, after: span.after - connected };
    since.crosses(interval.saturating_mul(intervals))
}

/// Returns the largest opacity and weight of pruned triangles after `done` images.
pub fn prune_threshold(options: &TrianglesOptions, done: u32) -> f64 {
    let interval = options.opacity_floor_interval.max(1);
    let first = options.start_opacity_floor / interval;
    let rises = (last_multiple(options, done) / interval).saturating_sub(first);
    options.prune_triangles_threshold + options.prune_threshold_rise * f64::from(rises)
}

/// Returns the last multiple of the interval up to `done`. Shortly after the mesh is connected, the last one before.
fn last_multiple(options: &TrianglesOptions, done: u32) -> u32 {
    let interval = options.opacity_floor_interval.max(1);
    let connected = options.delaunay_iter;
    let last = done / interval * interval;
    let is_at_rest = connected > 0
        && last > connected
        && last - connected <= interval.saturating_mul(SKIPPED_RISES);
    if is_at_rest { connected / interval * interval } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> TrianglesOptions {
        TrianglesOptions { delaunay_iter: 11_000, ..TrianglesOptions::default() }
    }

    #[test]
    fn the_window_becomes_solid_and_finely_sampled() {
        let at = |image| window(&options(), image, image - 1);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(at(15_000).exponent, 0.500_05) && close(at(30_000).exponent, 1e-4));
        assert!(close(at(90_000).exponent, 1e-4));
        let samples = [1, 23_999, 24_000, 27_999, 28_000, 30_000].map(|image| at(image).samples);
        assert_eq!(samples, [1, 1, 2, 2, 4, 4]);
        assert_eq!(at(30_000).opacity_floor, Window::SOLID.opacity_floor);
        let of_reference = |reference_gradients| {
            let options = TrianglesOptions { reference_gradients, edge_strip: 2.0, ..options() };
            let window = window(&options, 7, 0);
            (window.strip_px, window.gradients)
        };
        assert_eq!(of_reference(false), (2.0, PlaceGradients::All));
        assert_eq!(of_reference(true), (0.0, PlaceGradients::EdgeDistances));
        let held = TrianglesOptions { sigma_start: 100, sigma_until: 50, ..options() };
        assert_eq!([100, 101].map(|image| exponent(&held, image)), [1.0, 1e-4]);
    }

    #[test]
    fn hidden_triangles_go_at_intervals_once_the_mesh_is_connected() {
        let due = |options: &TrianglesOptions, batch: u32, views| -> Vec<u32> {
            let spans = (0..20_000).step_by(batch as usize);
            let spans = spans.map(|before| ImageSpan { before, after: before + batch });
            let due = spans.filter(|&span| drops_hidden(options, span, views));
            due.map(|span| span.after).collect()
        };
        let options = TrianglesOptions { hidden_interval: 2000, ..options() };
        assert_eq!(due(&options, 1, 500), [13_000, 15_000, 17_000, 19_000]);
        assert_eq!(due(&options, 8, 43), [13_000, 15_000, 17_000, 19_000]);
        // A removal renders every view, so more views mean fewer removals.
        assert_eq!(due(&options, 1, 501), [15_000, 19_000]);
        // No removal in the step that connects the mesh.
        let late = TrianglesOptions { delaunay_iter: 11_998, hidden_interval: 1, ..options };
        assert_eq!(due(&late, 8, 1)[..2], [12_008, 12_016]);
        let none = TrianglesOptions { hidden_interval: 0, ..options };
        assert!(due(&none, 1, 43).is_empty());
        assert!(due(&TrianglesOptions { delaunay_iter: 0, ..options }, 1, 43).is_empty());
    }

    #[test]
    fn the_floor_rises_every_interval_and_rests_after_the_mesh_is_connected() {
        let floor = |done| opacity_floor(&options(), done);
        assert_eq!([0, 5000, 5499].map(floor), [0.0; 3]);
        let expected = |image: f64| 0.1 + 0.8999 * (image - 5000.0) / 19_000.0;
        for (done, last) in [
            (5500, 5500.0),
            (5999, 5500.0),
            (6000, 6000.0),
            (11_000, 11_000.0),
            (12_000, 11_000.0),
            (12_499, 11_000.0),
            (12_500, 12_500.0),
            (23_999, 23_500.0),
        ] {
            assert!((floor(done) - expected(last)).abs() < 1e-12, "{done}");
        }
        assert_eq!([24_000, 30_000].map(floor), [0.9999; 2]);
        let never_lower = (1..=30_000).all(|done| floor(done - 1) <= floor(done));
        assert!(
            never_lower
                && (1..=30_000).filter(|&i| rises(&options(), ImageSpan::of(i))).count() > 30
        );
    }

    #[test]
    fn the_threshold_grows_with_every_floor() {
        let threshold = |done| prune_threshold(&options(), done);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(threshold(5499), 0.235) && close(threshold(5500), 0.245));
        // In the last step the threshold is below the floor, and with it below all opacities.
        assert!(close(threshold(10_499), 0.335) && opacity_floor(&options(), 10_499) > 0.335);
    }

    #[test]
    fn a_step_of_several_images_raises_the_floor_once() {
        let spans = |views: u32| {
            (0..3000).map(move |k| ImageSpan { before: k * views, after: (k + 1) * views })
        };
        let mut floor = 0.0;
        for span in spans(7) {
            assert_eq!(opacity_floor(&options(), span.before), floor);
            floor = opacity_floor(&options(), span.after);
        }
        assert!(floor > 0.8);
    }
}
