//! What meshing, cleaning and refinement take: light to places, what Gaussians are worth, fused depths, and
//! steps of those that are bound to a mesh.

use std::sync::Arc;

use splat_mesh::tsdf::Space;

use super::{DryRun, RATES};
use crate::backend::cuda::{Gradients, Model, Target};
use crate::backend::{
    AdamStep, Bind as _, BoundState, BoundStep, DeviceError, Fuse as _, Look, MaskedView,
    Objective, Render as _, Store as _, Transmittances as _, Wants, Worths as _,
};
use crate::math::Divisor;
use crate::math::bound::PerTriangle;
use crate::model::{BoundColumns, BoundTopology, Gaussians};

/// Places that are asked about.
const PLACES: usize = 100;

impl DryRun {
    /// Light to places, which a mesh by tetrahedra asks about.
    pub(super) fn light(&mut self, model: &Model) -> Result<(), DeviceError> {
        let case = self.case;
        let settings = case.settings();
        let places = vec![[0.0; 3]; PLACES];
        let passes = self.device.transmittances(model, &case.view(), &settings, &places)?;
        assert_eq!(passes.len(), PLACES);
        self.ends("light");
        Ok(())
    }

    /// What each Gaussian is worth in two views, which cleaning asks for.
    pub(super) fn worths(&mut self, model: &Model, target: &Target) -> Result<(), DeviceError> {
        let case = self.case;
        let (view, settings) = (case.view(), case.settings());
        let rows = model.len();
        let mut sums = self.device.no_worths(model, &vec![false; rows])?;
        for _ in 0..2 {
            self.device.add_worths(model, &view, &settings, target, &mut sums)?;
        }
        assert_eq!(self.device.read_worths(&sums)?.len(), rows);
        drop(sums);
        self.ends("the worths");
        Ok(())
    }

    /// Both looks at the depths of two views, of which one has a mask, that a mesh by depths takes.
    pub(super) fn fuse(&mut self, model: &Model) -> Result<(), DeviceError> {
        let case = self.case;
        let (view, settings) = (case.view(), case.settings());
        let mask = vec![1; case.px.map(|side| side as usize).iter().product()];
        let seen = MaskedView { view: &view, mask: Some(&mask) };
        let space = Space::contracted([0.0; 3], 1.0, 64).unwrap();
        let mut survey = self.device.new_survey(space)?;
        for _ in 0..2 {
            let frame = self.device.render(model, &view, &settings, Look::MEDIAN)?;
            self.device.survey_depths(&mut survey, &frame, seen)?;
        }
        let bricks = Arc::new(self.device.read_survey(survey)?.finish(usize::MAX)?);
        assert_eq!(bricks.len(), 2);
        self.ends("the bricks");
        let mut voxels = self.device.new_voxels(&bricks)?;
        for _ in 0..2 {
            let frame = self.device.render(model, &view, &settings, Look::MEDIAN)?;
            self.device.fuse_depths(&mut voxels, &frame, seen)?;
        }
        let fusion = self.device.read_voxels(voxels)?;
        assert_eq!(fusion.voxels().len(), 2 * 512);
        self.ends("the voxels");
        Ok(())
    }

    /// A step of Gaussians that are bound to triangles without a common edge.
    pub(super) fn refine(&mut self, target: &Target) -> Result<(), DeviceError> {
        let case = self.case;
        if case.compensation.is_some() {
            // The bound learn no colours of photographs.
            return Ok(());
        }
        let faces = u32::try_from(case.gaussians.div_ceil(3).max(1)).unwrap_or(1);
        let faces: Vec<[u32; 3]> = (0..faces).map(|f| [3 * f, 3 * f + 1, 3 * f + 2]).collect();
        let vertices = 3 * faces.len();
        let topology = BoundTopology::new(faces, vertices, PerTriangle::Three, -5.0).unwrap();
        let topology = Arc::new(topology);
        let columns = BoundColumns::at_rest(&vec![[0.0; 3]; vertices], &topology);
        let gaussians = Gaussians::zeros(case.sh_degree, topology.gaussians());
        let mut model = self.device.upload(&gaussians)?;
        let mut binding = self.device.bind(&mut model, &topology, &BoundState::new(columns))?;
        self.see(case.views[0], model.len());
        let terms = &case.terms(None);
        let wants = Wants { divisor: Divisor::One, ..case.wants(None) };
        let device = &mut self.device;
        let frame = device.render_train(&model, &case.view(), &case.settings(), &wants)?;
        let objective = Objective { target, terms, near: None, other: None };
        let (frame, loss) = device.objective(&model, frame, &objective)?;
        let mut gradients = Gradients::default();
        device.backward(&mut model, frame, None, &mut gradients)?;
        let step = BoundStep { adam: AdamStep::new(1, RATES), normal_consistency: 0.1 };
        device.step_bound(&mut model, &mut binding, gradients, &step)?;
        drop(loss);
        self.ends("a step of the bound");
        Ok(())
    }
}
