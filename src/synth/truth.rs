//! True mesh of a synthetic scene, for the evaluation of models: marching cubes of its distances on bricks near
//! surfaces, with each vertex moved onto the surface.

use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use splat_mesh::bricks::{self, BRICK_NODES, Bricks, SIDE};
use splat_mesh::cubes::{ExtractError, extract};
use splat_mesh::narrow::{floor_u32, to_f32};
use splat_mesh::{Mesh, Watch};

use super::scene::Scenery;
use crate::math::linalg::{Vec3, add, dot, scale, sub};

/// Nodes between the scene's box and the border of the lattice.
const MARGIN: f64 = 3.0;

/// Newton steps of a vertex onto the surface.
const STEPS: usize = 3;

/// Step of the finite differences, world units.
const DIFFERENCE: f64 = 1e-5;

/// Maximum displacement of a vertex, in cells. Displacements are far shorter on smooth surfaces; longer ones beside
/// edges would fold faces.
const MAX_DISPLACEMENT: f64 = 0.25;

/// Minimum square of a gradient along which a vertex moves. Smaller gradients occur where surfaces meet.
const MIN_GRADIENT: f64 = 0.1;

struct NodeLattice {
    low: Vec3<f64>,
    /// Side of a cell, world units.
    cell: f64,
    bricks: [u32; 3],
}

impl NodeLattice {
    fn around(scenery: &dyn Scenery, cells: u32) -> Self {
        let bounds = scenery.bounds();
        let cell = bounds.longest_side() / f64::from(cells.max(1));
        let low = bounds.low.map(|low| low - MARGIN * cell);
        let count = |side: f64| ((side / cell + 2.0 * MARGIN) / SIDE as f64).ceil() + 1.0;
        Self { low, cell, bricks: bounds.sides().map(|side| floor_u32(count(side))) }
    }

    /// Returns the position of a node, which may be fractional.
    fn place(&self, node: Vec3<f64>) -> Vec3<f64> {
        add(self.low, scale(node, self.cell))
    }

    /// Returns the bricks near surfaces and their successors, which hold the last nodes of the cells.
    fn bricks(&self, scenery: &dyn Scenery) -> Bricks {
        let [x_count, y_count, z_count] = self.bricks;
        let half = 0.5 * SIDE as f64;
        let reach = 3.0_f64.sqrt() * half * self.cell;
        let slices: Vec<Vec<u64>> = (0..z_count)
            .into_par_iter()
            .map(|z| {
                let row = |y| (0..x_count).map(move |x| [x, y, z]);
                let all = (0..y_count).flat_map(row);
                let may_pass = all.filter(|brick| {
                    let middle = brick.map(|b| f64::from(b) * SIDE as f64 + half);
                    scenery.distance(self.place(middle)).abs() <= reach
                });
                may_pass.flat_map(with_next).map(bricks::key).collect()
            })
            .collect();
        Bricks::of_keys(slices.concat())
    }

    /// Returns the distances at all nodes of the bricks.
    fn distances(&self, scenery: &dyn Scenery, bricks: &Bricks) -> Vec<f32> {
        let mut values = vec![0.0; bricks.len() * BRICK_NODES];
        values.par_chunks_exact_mut(BRICK_NODES).enumerate().for_each(|(brick, values)| {
            let first = bricks.place(brick).map(|b| f64::from(b) * SIDE as f64);
            for (node, value) in values.iter_mut().enumerate() {
                let local = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
                let at = std::array::from_fn(|axis| first[axis] + local[axis] as f64);
                *value = to_f32(scenery.distance(self.place(at)));
            }
        });
        values
    }
}

/// Returns a brick and its successors along one, two or three axes.
fn with_next([x, y, z]: [u32; 3]) -> [[u32; 3]; 8] {
    [0, 1, 2, 3, 4, 5, 6, 7].map(|bits: u32| [x + (bits & 1), y + (bits >> 1 & 1), z + (bits >> 2)])
}

/// Extracts the surface of a scene, closed and with outward faces, with `cells` cells along the longest side.
pub(super) fn true_mesh(scenery: &dyn Scenery, cells: u32) -> Result<Mesh, ExtractError> {
    let lattice = NodeLattice::around(scenery, cells);
    let bricks = lattice.bricks(scenery);
    let values = lattice.distances(scenery, &bricks);
    let stop = AtomicBool::new(false);
    let surface = extract(&bricks, &values, 0.0, &Watch { stop: &stop, on_progress: &|_, _| () })?;
    drop(values);
    Ok(surface.mesh(&bricks, &|node| onto(scenery, lattice.place(node), lattice.cell)))
}

/// Moves a point onto the surface by Newton steps, at most [`MAX_DISPLACEMENT`] cells.
fn onto(scenery: &dyn Scenery, from: Vec3<f64>, cell: f64) -> Vec3<f64> {
    let longest = MAX_DISPLACEMENT * cell;
    let mut at = from;
    for _ in 0..STEPS {
        let distance = scenery.distance(at);
        let gradient = std::array::from_fn(|axis| {
            let mut offset = [0.0; 3];
            offset[axis] = DIFFERENCE;
            let rise = scenery.distance(add(at, offset)) - scenery.distance(sub(at, offset));
            rise / (2.0 * DIFFERENCE)
        });
        let square = dot(gradient, gradient);
        if square < MIN_GRADIENT {
            break;
        }
        let moved = sub(at, scale(gradient, distance / square));
        let way = sub(moved, from);
        if dot(way, way) > longest * longest {
            break;
        }
        at = moved;
    }
    at
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use splat_mesh::MeshReport;

    use super::*;
    use crate::math::linalg::length;
    use crate::math::random::{RandomStream, RandomUse};
    use crate::synth::cameras::{dome, ray_through};
    use crate::synth::scene::Scene;
    use crate::synth::{SynthOptions, SynthScene, scenery_of};

    #[test]
    fn visible_points_lie_on_the_surfaces() {
        for seed in 0..4 {
            let scene = Scene::new(seed);
            let (mut rays, mut turned) = (0, 0);
            for view in dome(&SynthOptions { seed, views: 6, ..SynthOptions::default() }) {
                for i in 0..300_u32 {
                    let at = [f64::from(i % 20) * 8.0 + 3.7, f64::from(i / 20) * 8.0 + 2.9];
                    let Some(hit) = scene.trace(&ray_through(&view, at)) else { continue };
                    let found = scene.nearest(hit.position);
                    // Tolerance of a march, world units, and of a gourd's bound.
                    assert!(found.distance.abs() < 4e-4, "seed {seed} {hit:?} {found:?}");
                    rays += 1;
                    turned += u32::from(dot(found.normal, hit.normal) < 0.999);
                }
            }
            // Another surface may be nearer than the hit one only within 4e-4 of a crease.
            assert!(rays > 1000 && turned * 200 < rays, "seed {seed}: {turned} of {rays}");
        }
    }

    #[test]
    fn a_step_off_a_surface_has_the_length_of_the_distance() {
        let scene = Scene::new(2);
        let view = &dome(&SynthOptions::default())[30];
        let mut seen = 0;
        for i in 0..400_u32 {
            let at = [f64::from(i % 20) * 8.0 + 3.7, f64::from(i / 20) * 6.0 + 1.9];
            let Some(hit) = scene.trace(&ray_through(view, at)) else { continue };
            let on = scene.nearest(hit.position);
            let off = scene.nearest(add(on.position, scale(on.normal, 0.01)));
            // Valleys of the gourd bend by at most a fifth of 0.01. In a corner another surface is nearer.
            if dot(off.normal, on.normal) > 0.999 {
                assert!((off.distance - 0.01).abs() < 1e-9, "{on:?} {off:?}");
                seen += 1;
            }
        }
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn no_surface_found_is_inside_a_solid_and_the_floor_ends_at_its_rim() {
        let scene = Scene::new(1);
        let stream = RandomStream::new(3, 0, RandomUse::Sample);
        for i in 0..500_u64 {
            let draw = |c: u64| stream.uniform(3 * i + c) - 0.5;
            let point = [5.0 * draw(0), -1.0 + 2.4 * draw(1), 5.0 * draw(2)];
            let found = scene.nearest(point);
            let apart = length(sub(point, found.position));
            assert!((found.distance.abs() - apart).abs() < 1e-9, "{point:?} {found:?}");
            let again = scene.nearest(found.position).distance;
            assert!(again.abs() < 1e-6, "{point:?} {found:?} {again}");
        }
        let below = scene.nearest([3.3, 0.0, 0.0]);
        assert!((below.distance - 1.0).abs() < 1e-12 && below.normal == [0.0, -1.0, 0.0]);
        let beside = scene.nearest([2.0, -0.1, 0.0]);
        assert!((beside.distance - 0.1).abs() < 1e-12 && beside.position == [2.0, 0.0, 0.0]);
    }

    fn report(scene: SynthScene, cells: u32) -> MeshReport {
        let options = SynthOptions { scene, ..SynthOptions::default() };
        let scenery = scenery_of(&options);
        let mesh = true_mesh(&*scenery, cells).unwrap();
        let found = MeshReport::of(&mesh).unwrap();
        assert!(found.watertight, "{scene:?}: {found}");
        assert_eq!(found.nonmanifold_vertices + found.unused_vertices, 0, "{scene:?}: {found}");
        let cell = scenery.bounds().longest_side() / f64::from(cells);
        let off = mesh.vertices.iter().map(|&v| scenery.distance(v.map(f64::from)).abs());
        let off: Vec<f64> = off.collect();
        assert!(off.iter().all(|&off| off < 0.5 * cell), "{scene:?}");
        // Faces at edges where surfaces meet are excepted.
        let near = off.iter().filter(|&&off| off < 1e-4).count();
        assert!(near * 100 > 97 * off.len(), "{scene:?}: {near} of {}", off.len());
        found
    }

    #[test]
    fn spheres_and_tori_have_their_area_volume_and_genus() {
        for (scene, cells, area, volume, genus) in [
            (SynthScene::Sphere, 96, 4.0 * PI, 4.0 / 3.0 * PI, 0),
            (SynthScene::Torus, 128, 1.6 * PI * PI, 0.32 * PI * PI, 1),
        ] {
            let found = report(scene, cells);
            assert_eq!((found.components, found.genus), (1, Some(genus)), "{scene:?}");
            // A chord of a cell of 1/48 lies up to 1/48²/8 below a curve of radius 0.4.
            assert!((found.area / area - 1.0).abs() < 3e-4, "{scene:?}: {}", found.area);
            let off = found.volume.unwrap() / volume - 1.0;
            assert!(off.abs() < 6e-4, "{scene:?}: {off}");
        }
    }

    #[test]
    fn scenes_with_edges_are_watertight_with_outward_faces() {
        let demo = report(SynthScene::Demo, 160);
        assert!(demo.volume.unwrap() > 1.0, "{demo}");
        let plate = report(SynthScene::Dtu, 128);
        // The plate is 0.32; solids stand on it.
        assert_eq!(plate.components, 1, "{plate}");
        assert!((0.5..1.0).contains(&plate.volume.unwrap()), "{plate}");
        let room = report(SynthScene::Room, 340);
        // The faces look into the room: 64.8 m³ and 1.12 of the recess are free, less the solids in it.
        assert!((-65.6..-64.8).contains(&room.volume.unwrap()), "{room}");
    }
}
