//! A primitive that the product does not know: a ball of one colour, without harmonics.

use splat::backend::cpu::{Drawable, DrawnView, Ellipsoid, Model, NotFinite, Splat};
use splat::backend::{
    DeviceError, LossValues, Objective, Pending as _, Render, RenderSettings, Terms, TrainRequest,
};
use splat::dataset::View;
use splat::export::{Meaning, PlyField, PlyRows};
use splat::layout::{Column, Forms, Rate, RowForm, Schema, Space, Table, Width};
use splat::math::Real;
use splat::math::blend::ScreenGradient;
use splat::math::field::GEOMETRY;
use splat::math::splat::Shape;
use splat::model::Primitive;

use super::Draws;

/// Balls as a structure of arrays, raw parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balls {
    /// Centres in the world, [n, 3].
    pub means: Vec<f32>,
    /// Logarithms of the standard deviations, world units, `[n]`.
    pub log_scales: Vec<f32>,
    /// Opacities before the sigmoid, `[n]`.
    pub opacity_logits: Vec<f32>,
    /// Colours, [n, 3].
    pub colors: Vec<f32>,
}

/// The columns by their places in the schema.
pub const MEANS: usize = 0;
pub const LOG_SCALES: usize = 1;
pub const OPACITY_LOGITS: usize = 2;
pub const COLORS: usize = 3;

const BALLS: Schema = Schema {
    spaces: &[Space { one: "ball", many: "balls" }],
    tables: &[Table {
        labels: ["balls", "balls, first moments", "balls, second moments"],
        space: 0,
        full: Forms::FLOATS,
        compact: Forms { first: RowForm::Bfloats, ..Forms::FLOATS },
        is_lazy: false,
    }],
    columns: &[
        column("means", 3, Rate::Means, "centre"),
        column("log_scales", 1, Rate::LogScales, "log-scale"),
        column("opacity_logits", 1, Rate::OpacityLogits, "opacity"),
        column("colors", 3, Rate::ShDc, "colour"),
    ],
};

const fn column(name: &'static str, width: u32, rate: Rate, words: &'static str) -> Column {
    Column { name, width: Width::Fixed(width), rate, table: 0, words }
}

impl Primitive for Balls {
    const SCHEMA: &'static Schema = &BALLS;

    fn empty(_sh_degree: u32) -> Self {
        Self::default()
    }

    fn sh_degree(&self) -> u32 {
        0
    }

    fn values(&self) -> Vec<&[f32]> {
        vec![&self.means, &self.log_scales, &self.opacity_logits, &self.colors]
    }

    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>> {
        vec![&mut self.means, &mut self.log_scales, &mut self.opacity_logits, &mut self.colors]
    }
}

impl PlyRows for Balls {
    const FIELDS: &'static [PlyField] = &[
        PlyField::Values { column: 0, names: &["x", "y", "z"], meaning: Meaning::Position },
        PlyField::Values { column: 3, names: &["red", "green", "blue"], meaning: Meaning::Other },
        PlyField::Values { column: 2, names: &["opacity"], meaning: Meaning::Other },
        PlyField::Values { column: 1, names: &["scale"], meaning: Meaning::LogLength },
    ];
}

impl Drawable for Balls {
    fn project<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
    ) -> Result<Option<Splat<R>>, NotFinite> {
        model.check_finite(row, MEANS..COLORS)?;
        let Some(splat) = ellipsoid(model, row).splat(row, view) else { return Ok(None) };
        model.check_finite(row, COLORS..COLORS + 1)?;
        let color = triple(model, COLORS, row).map(|c| c.max(R::ZERO));
        Ok(Some(Splat { color, ..splat }))
    }

    fn project_bwd<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        d_row: &mut [R],
    ) {
        let ellipsoid = ellipsoid(model, row);
        let mut d_ellipsoid = [R::ZERO; GEOMETRY];
        ellipsoid.splat_bwd(view, d_splat, &mut d_ellipsoid);
        // A ball that is turned is the same ball.
        let [x, y, z, a, b, c, _, _, _, _, d_logit] = d_ellipsoid;
        let color = triple(model, COLORS, row);
        // A channel that was held at 0 takes no gradient.
        let [red, green, blue] =
            [0, 1, 2].map(|k| if color[k] > R::ZERO { d_splat.d_color[k] } else { R::ZERO });
        for (sum, d) in d_row.iter_mut().zip([x, y, z, a + b + c, d_logit, red, green, blue]) {
            *sum += d;
        }
    }
}

/// A ball as an ellipsoid of three equal scales, without a filter.
fn ellipsoid<R: Real>(model: &Model<R, Balls>, row: usize) -> Ellipsoid<R> {
    let shape = Shape {
        mean_world: triple(model, MEANS, row),
        log_scale: [model.values(LOG_SCALES, row)[0]; 3],
        quat: [R::ONE, R::ZERO, R::ZERO, R::ZERO],
        smoothing: R::ZERO,
    };
    Ellipsoid { shape, opacity_logit: model.values(OPACITY_LOGITS, row)[0] }
}

fn triple<R: Real>(model: &Model<R, Balls>, column: usize, row: usize) -> [R; 3] {
    let values = model.values(column, row);
    [values[0], values[1], values[2]]
}

/// Overlapping balls in front of the common view.
pub fn visible_balls(count: usize, seed: u64) -> Balls {
    let mut draws = Draws::new(seed);
    let mut balls = Balls::zeros(0, count);
    for i in 0..count {
        let place =
            [draws.uniform(-0.45, 0.45), draws.uniform(-0.45, 0.45), draws.uniform(1.0, 2.5)];
        balls.means[3 * i..][..3].copy_from_slice(&place.map(f64::to_f32));
        balls.log_scales[i] = draws.uniform(-3.2, -1.4).to_f32();
        balls.opacity_logits[i] = draws.uniform(-1.0, 2.0).to_f32();
        balls.colors[3 * i..][..3].copy_from_slice(&draws.array::<3>(0.05, 0.95).map(f64::to_f32));
    }
    balls
}

/// A view to train on, with its photograph and the terms that compare them.
pub struct Seen<'a, T> {
    pub view: &'a View,
    pub settings: &'a RenderSettings,
    pub request: &'a TrainRequest,
    pub target: &'a T,
    pub terms: &'a Terms,
}

/// Adds the gradients of a view; gives the values of the terms at pixels.
pub fn add_view<P: Primitive, D: Render<P>>(
    device: &mut D,
    model: &mut D::Model,
    seen: &Seen<'_, D::Target>,
    gradients: &mut D::Gradients,
) -> Result<LossValues, DeviceError> {
    let &Seen { view, settings, request, target, terms } = seen;
    let frame = device.render_train(model, view, settings, request)?;
    let objective = Objective { target, terms, near: None, other: None };
    let (frame, losses) = device.objective(model, frame, &objective)?;
    device.backward(model, frame, None, gradients)?;
    losses.read()
}
