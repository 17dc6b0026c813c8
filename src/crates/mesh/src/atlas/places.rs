//! What an atlas is: faces with places on a picture.

/// Places of a mesh's faces on one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Atlas {
    /// Width of the picture in texels.
    pub width: u32,
    /// Height of the picture in texels.
    pub height: u32,
    /// Places in texels, from the outer corner of the top left texel, whose centre is (0.5, 0.5); v
    /// runs down.
    pub places_px: Vec<[f32; 2]>,
    /// Three places of each face of the mesh, in the faces' order. All faces have the same sense.
    pub faces: Vec<[u32; 3]>,
    /// Connected pieces that the surface is cut into.
    pub charts: u32,
}

impl Atlas {
    /// A place as shares of width and height, v down; the origin where there is no such place.
    pub fn uv(&self, place: usize) -> [f32; 2] {
        let [x, y] = self.places_px.get(place).copied().unwrap_or_default();
        [x / self.width.max(1) as f32, y / self.height.max(1) as f32]
    }

    /// The places of a face in texels; the origin where there are none.
    pub fn corners_px(&self, face: [u32; 3]) -> [[f64; 2]; 3] {
        face.map(|place| {
            self.places_px.get(place as usize).copied().unwrap_or_default().map(f64::from)
        })
    }
}
