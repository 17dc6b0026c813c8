//! The least rectangle around a chart.

/// A place on a chart's plane, world units.
pub(super) type Place = [f64; 2];

/// Turns and moves places so that the least rectangle around them has its sides along the axes, its first
/// corner at the origin, and is wider than high; its width and height.
pub(super) fn least_rectangle(places: &mut [Place]) -> [f64; 2] {
    // One side of the least rectangle lies on a side of the convex hull (Freeman and Shapira 1975).
    let hull = convex_hull(places);
    let mut best = ([1.0, 0.0], f64::INFINITY);
    for (at, from) in hull.iter().enumerate() {
        let to = hull[(at + 1) % hull.len()];
        let (x, y) = (to[0] - from[0], to[1] - from[1]);
        let length = x.hypot(y);
        if length == 0.0 {
            continue;
        }
        let turn = [x / length, y / length];
        let [width, height] = extent(hull.iter().map(|&place| turned(place, turn))).size();
        if width * height < best.1 {
            best = (turn, width * height);
        }
    }
    let [mut x, mut y] = best.0;
    let [width, height] = extent(hull.iter().map(|&place| turned(place, [x, y]))).size();
    if height > width {
        [x, y] = [-y, x];
    }
    places.iter_mut().for_each(|place| *place = turned(*place, [x, y]));
    let all = extent(places.iter().copied());
    places.iter_mut().for_each(|place| {
        *place = [place[0] - all.low[0], place[1] - all.low[1]];
    });
    all.size()
}

/// A place where `turn` becomes the first axis.
fn turned([x, y]: Place, turn: [f64; 2]) -> Place {
    [x * turn[0] + y * turn[1], y * turn[0] - x * turn[1]]
}

struct FlatBounds {
    low: Place,
    high: Place,
}

impl FlatBounds {
    fn size(&self) -> [f64; 2] {
        [0, 1].map(|axis| (self.high[axis] - self.low[axis]).max(0.0))
    }
}

fn extent(places: impl Iterator<Item = Place>) -> FlatBounds {
    let empty = FlatBounds { low: [f64::INFINITY; 2], high: [f64::NEG_INFINITY; 2] };
    places.fold(empty, |extent, place| FlatBounds {
        low: [0, 1].map(|axis| extent.low[axis].min(place[axis])),
        high: [0, 1].map(|axis| extent.high[axis].max(place[axis])),
    })
}

/// The corners of the convex hull, counter-clockwise (Andrew 1979).
fn convex_hull(places: &[Place]) -> Vec<Place> {
    let mut sorted = places.to_vec();
    sorted.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    sorted.dedup();
    if sorted.len() < 3 {
        return sorted;
    }
    let half = |places: &mut dyn Iterator<Item = &Place>| {
        let mut chain: Vec<Place> = Vec::new();
        for &place in places {
            while let [.., a, b] = chain[..] {
                let turn = (b[0] - a[0]) * (place[1] - a[1]) - (b[1] - a[1]) * (place[0] - a[0]);
                if turn > 0.0 {
                    break;
                }
                chain.pop();
            }
            chain.push(place);
        }
        chain.pop();
        chain
    };
    let mut hull = half(&mut sorted.iter());
    hull.extend(half(&mut sorted.iter().rev()));
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_rectangle_lies_along_the_axes() {
        let turn = [0.6, 0.8];
        let grid = (0..5).flat_map(|x| (0..9).map(move |y| [f64::from(x), f64::from(y)]));
        let mut places: Vec<Place> = grid.map(|place| turned(place, turn)).collect();
        let [width, height] = least_rectangle(&mut places);
        assert!((width - 8.0).abs() < 1e-12 && (height - 4.0).abs() < 1e-12, "{width} {height}");
        let all = extent(places.iter().copied());
        assert_eq!((all.low, all.high), ([0.0; 2], [width, height]));
        // The sense of a triangle stays.
        let area =
            |[a, b, c]: [Place; 3]| (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
        assert!((area([places[0], places[9], places[1]]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_point_and_a_line_have_no_height() {
        assert_eq!(least_rectangle(&mut [[3.0, 4.0]; 3]), [0.0; 2]);
        let mut line = [[1.0, 1.0], [4.0, 5.0], [1.0, 1.0]];
        let [width, height] = least_rectangle(&mut line);
        assert!((width - 5.0).abs() < 1e-12 && height < 1e-12);
        assert_eq!(least_rectangle(&mut []), [0.0; 2]);
    }
}
