//! Stage `bind`: Gaussians bound to a mesh. The twin of `backend/cpu/stage/bind.rs`.

use std::ops::Range;
use std::sync::Arc;

use crate::abi::BindArgs;
use crate::backend::cuda::memory::heap::{Region, host_len};
use crate::backend::cuda::model::tables::pointers;
use crate::backend::cuda::prelude::*;
use crate::backend::{AdamStep, BoundState, BoundStep, Rates};
use crate::layout::{BOUND_MESH, BOUND_VALUES, BoundSizes, GAUSSIANS};
use crate::math::adam::Moments;
use crate::model::{BoundColumns, BoundTopology};

/// A mesh on the device, and the Gaussians bound to it.
pub struct Binding {
    topology: Arc<BoundTopology>,
    /// Faces, hinges, and the lists of the vertices.
    mesh: Region<u32>,
    /// The parts of [`BoundPart`].
    values: Region<f32>,
    /// True if the roles of vertices and next vertices are swapped.
    is_swapped: bool,
}

/// The parts of the values, in order.
#[derive(Clone, Copy)]
enum BoundPart {
    Vertices,
    NextVertices,
    VerticesFirst,
    VerticesSecond,
    Forms,
    FormsFirst,
    FormsSecond,
}

/// The tables of the mesh, in order.
#[derive(Clone, Copy)]
enum MeshTable {
    Faces,
    Hinges,
    CornerStarts,
    CornerNumbers,
    HingeStarts,
    HingeNumbers,
}

fn tables(topology: &BoundTopology) -> [&[u32]; 6] {
    let BoundTopology { faces, hinges, corners_of, hinges_of, .. } = topology;
    [
        faces.as_flattened(),
        hinges.as_flattened(),
        &corners_of.starts,
        &corners_of.numbers,
        &hinges_of.starts,
        &hinges_of.numbers,
    ]
}

/// Values per Gaussian's form and per vertex.
const FORM_WIDTH: usize = 4;
const VERTEX_WIDTH: usize = 3;

impl Binding {
    pub(crate) fn new(
        session: &Session,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<Self> {
        let mut mesh = session.heap.region(&BOUND_MESH)?;
        let sizes = topology.sizes();
        mesh.grow(host_len(BOUND_MESH.len(&sizes)))?;
        let mut values = session.heap.region(&BOUND_VALUES)?;
        let topology = Arc::clone(topology);
        let mut first = 0;
        for table in tables(&topology) {
            mesh.upload(&session.stream, first, table)?;
            first += table.len();
        }
        values.grow(host_len(BOUND_VALUES.len(&sizes)))?;
        let mut this = Self { topology, mesh, values, is_swapped: false };
        let parts = [
            (BoundPart::Vertices, BoundPart::Forms, &state.values),
            (BoundPart::VerticesFirst, BoundPart::FormsFirst, &state.first_moments),
            (BoundPart::VerticesSecond, BoundPart::FormsSecond, &state.second_moments),
        ];
        for (vertices, forms, columns) in parts {
            this.upload(session, vertices, &columns.vertices)?;
            this.upload(session, forms, &join_forms(columns))?;
        }
        Ok(this)
    }

    pub(crate) fn sizes(&self) -> BoundSizes {
        self.topology.sizes()
    }

    pub(crate) fn read(&self, session: &Session) -> Result<BoundState> {
        let columns = |vertices: BoundPart, forms: BoundPart| {
            let forms = self.download(session, forms)?;
            let half = |from: usize| {
                let rows = forms.chunks_exact(FORM_WIDTH);
                rows.flat_map(|row| [row[from], row[from + 1]]).collect()
            };
            let vertices = self.download(session, vertices)?;
            Ok::<_, DeviceError>(BoundColumns { vertices, log_scales: half(0), turns: half(2) })
        };
        Ok(BoundState {
            values: columns(self.now(), BoundPart::Forms)?,
            first_moments: columns(BoundPart::VerticesFirst, BoundPart::FormsFirst)?,
            second_moments: columns(BoundPart::VerticesSecond, BoundPart::FormsSecond)?,
        })
    }

    /// Returns the part that holds the vertices.
    fn now(&self) -> BoundPart {
        if self.is_swapped { BoundPart::NextVertices } else { BoundPart::Vertices }
    }

    /// Returns the part that the next step writes the vertices to.
    fn next(&self) -> BoundPart {
        if self.is_swapped { BoundPart::Vertices } else { BoundPart::NextVertices }
    }

    fn upload(&mut self, session: &Session, part: BoundPart, host: &[f32]) -> Result {
        let start = range(&self.topology, part).start;
        self.values.upload(&session.stream, start, host)
    }

    fn download(&self, session: &Session, part: BoundPart) -> Result<Vec<f32>> {
        self.values.download_vec(&session.stream, range(&self.topology, part))
    }

    fn address(&self, part: BoundPart) -> u64 {
        let start = range(&self.topology, part).start;
        self.values.address() + (start * size_of::<f32>()) as u64
    }

    fn table(&self, table: MeshTable) -> In<'_, u32> {
        let before = &tables(&self.topology)[..table as usize];
        let start: usize = before.iter().map(|table| table.len()).sum();
        In::at(self.mesh.address() + (start * size_of::<u32>()) as u64)
    }

    fn part(&self, part: BoundPart) -> Out<'_, f32> {
        Out::at(self.address(part))
    }
}

/// Returns the range of a part in the values.
fn range(topology: &BoundTopology, part: BoundPart) -> Range<usize> {
    let vertices = VERTEX_WIDTH * topology.vertices();
    let forms = FORM_WIDTH * topology.gaussians();
    let number = part as usize;
    let first_form = BoundPart::Forms as usize;
    if number < first_form {
        return number * vertices..(number + 1) * vertices;
    }
    let start = host_len(topology.sizes().forms_start());
    start + (number - first_form) * forms..start + (number - first_form + 1) * forms
}

/// Joins the scale and turn of every Gaussian.
fn join_forms(columns: &BoundColumns) -> Vec<f32> {
    let pairs = columns.log_scales.chunks_exact(2).zip(columns.turns.chunks_exact(2));
    pairs.flat_map(|(scales, turn)| [scales[0], scales[1], turn[0], turn[1]]).collect()
}

fn args<'a>(
    fault: Out<'a, u64>,
    model: &'a mut Model,
    binding: &'a Binding,
    d_geometry: Out<'a, f32>,
    step: &BoundStep,
) -> Result<BindArgs<'a>> {
    let Moments { betas, corrections: [first_correction, second_correction], epsilon } =
        step.adam.moments;
    let topology = &binding.topology;
    let gaussians = count_u32(model.len())?;
    let [geometry, ..] = pointers(&mut model.tables);
    let rate = |rate: f64| (rate / first_correction).to_f32();
    let Rates { means, log_scales, quats, .. } = step.adam.rates;
    Ok(BindArgs {
        geometry: geometry.floats(),
        d_geometry,
        faces: binding.table(MeshTable::Faces),
        hinges: binding.table(MeshTable::Hinges),
        corner_starts: binding.table(MeshTable::CornerStarts),
        corner_numbers: binding.table(MeshTable::CornerNumbers),
        hinge_starts: binding.table(MeshTable::HingeStarts),
        hinge_numbers: binding.table(MeshTable::HingeNumbers),
        vertices: In::at(binding.address(binding.now())),
        next_vertices: binding.part(binding.next()),
        vertices_first: binding.part(BoundPart::VerticesFirst),
        vertices_second: binding.part(BoundPart::VerticesSecond),
        forms: binding.part(BoundPart::Forms),
        forms_first: binding.part(BoundPart::FormsFirst),
        forms_second: binding.part(BoundPart::FormsSecond),
        fault,
        vertex_rate: rate(means),
        log_scale_rate: rate(log_scales),
        turn_rate: rate(quats),
        beta_1: betas[0].to_f32(),
        beta_2: betas[1].to_f32(),
        // From double precision, as in `adam`.
        one_less_beta_1: (1.0 - betas[0]).to_f32(),
        one_less_beta_2: (1.0 - betas[1]).to_f32(),
        inverse_root_correction: (1.0 / second_correction.sqrt()).to_f32(),
        epsilon: epsilon.to_f32(),
        per_hinge: step.per_hinge(topology.hinges.len()).to_f32(),
        log_thickness: topology.log_thickness,
        gaussians,
        each: count_u32(topology.per_triangle.count())?,
        vertices_len: count_u32(topology.vertices())?,
    })
}

/// Moves the Gaussians to their places on the mesh.
pub(crate) fn place(session: &mut Session, model: &mut Model, binding: &Binding) -> Result {
    let step = BoundStep { adam: AdamStep::new(1, Rates::NONE), normal_consistency: 0.0 };
    let rows = model.len();
    let args = args(session.status.fault(&GAUSSIANS), model, binding, Out::NULL, &step)?;
    session.kernels.bind_place.over(&session.stream, rows, &args)
}

/// Steps the mesh and the forms down the gradients of the geometry, [n, 12], then places the Gaussians.
pub(crate) fn step(
    session: &mut Session,
    model: &mut Model,
    binding: &mut Binding,
    d_geometry: &mut Block<f32>,
    step: &BoundStep,
) -> Result {
    let begun = session.timers.begin(Stage::Step, &session.stream)?;
    let (rows, vertices) = (model.len(), binding.topology.vertices());
    let args = args(session.status.fault(&GAUSSIANS), model, binding, d_geometry.write(), step)?;
    session.kernels.bind_forms.over(&session.stream, rows, &args)?;
    session.kernels.bind_vertices.over(&session.stream, vertices, &args)?;
    binding.is_swapped = !binding.is_swapped;
    place(session, model, binding)?;
    session.timers.end(&begun, &session.stream)
}
