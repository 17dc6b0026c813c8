//! Stage `shrink`: a photograph shrunken for a smaller view.

use crate::abi::{In, Out, ShrinkArgs};
use crate::backend::DeviceError;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer, Heap};
use crate::backend::cuda::photos::{Photograph, Target, check_size};
use crate::backend::cuda::session::Session;
use crate::layout::{ShrunkSlots, ViewRequest, ViewSizes};
use crate::math::Divisor;
use crate::memory::Bytes;

/// Memory for a shrunken photograph.
pub(crate) struct Shrunk(ShrunkSlots<Heap>);

impl Shrunk {
    /// Allocates it if the view is smaller than its photograph.
    pub(crate) fn reserve(
        heap: &Heap,
        sizes: &ViewSizes,
        wants: &ViewRequest,
    ) -> Result<Option<Self>, DeviceError> {
        Ok(ShrunkSlots::reserve(heap, sizes, wants)?.map(Self))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.0.bytes())
    }

    /// Shrinks the photograph for a view of `view_px`.
    pub(crate) fn shrink<'a>(
        &'a mut self,
        session: &Session,
        target: &Target,
        view_px: [u32; 2],
        divisor: Divisor,
    ) -> Result<Photograph<'a>, DeviceError> {
        let size = divisor.px(target.size());
        check_size(size, view_px)?;
        let begun = session.timers.begin(Stage::Loss, &session.stream)?;
        target.wait(&session.stream)?;
        let ShrunkSlots { colors, mask, depths, normals } = &mut self.0;
        let has_mask = target.mask().address() != In::<u8>::NULL.address();
        let map = depths.as_mut().zip(target.depth());
        let (depths, small_depths, fit) = match map {
            Some((depths, (map, fit))) => (map, depths.write(), Some(fit)),
            None => (In::NULL, Out::NULL, None),
        };
        let map = normals.as_mut().zip(target.normals());
        let has_normals = map.is_some();
        let (normals, small_normals) = match map {
            Some((normals, map)) => (map, normals.write()),
            None => (In::NULL, Out::NULL),
        };
        let args = ShrinkArgs {
            rgb: target.rgb(),
            mask: target.mask(),
            depths,
            normals,
            small_rgb: colors.write(),
            small_mask: if has_mask { mask.write() } else { Out::NULL },
            small_depths,
            small_normals,
            size,
            full_width: target.size()[0],
            divisor: divisor.get(),
        };
        let pixels = size[0] as usize * size[1] as usize;
        session.kernels.shrink.over(&session.stream, pixels, &args)?;
        target.used(&session.stream)?;
        session.timers.end(&begun, &session.stream)?;
        let Self(ShrunkSlots { colors, mask, depths, normals }) = self;
        Ok(Photograph {
            size,
            rgb: colors.read(),
            mask: if has_mask { mask.read() } else { In::NULL },
            depth: depths.as_ref().map(Block::read).zip(fit),
            normals: normals.as_ref().filter(|_| has_normals).map(Block::read),
            arrives: None,
        })
    }
}
