//! The types of a column.

/// Types of a column; all values fit a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `char`.
    I8,
    /// `uchar`.
    U8,
    /// `short`.
    I16,
    /// `ushort`.
    U16,
    /// `int`.
    I32,
    /// `uint`.
    U32,
    /// `float`.
    F32,
    /// `double`.
    F64,
}

impl Scalar {
    /// The type that a header calls `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "char" | "int8" => Self::I8,
            "uchar" | "uint8" => Self::U8,
            "short" | "int16" => Self::I16,
            "ushort" | "uint16" => Self::U16,
            "int" | "int32" => Self::I32,
            "uint" | "uint32" => Self::U32,
            "float" | "float32" => Self::F32,
            "double" | "float64" => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Whether values may have a fraction.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The value at the start of little-endian `bytes`; none if these are too few.
    pub fn value(self, bytes: &[u8]) -> Option<f64> {
        fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.first_chunk().copied()
        }
        Some(match self {
            Self::I8 => i8::from_le_bytes(first(bytes)?).into(),
            Self::U8 => u8::from_le_bytes(first(bytes)?).into(),
            Self::I16 => i16::from_le_bytes(first(bytes)?).into(),
            Self::U16 => u16::from_le_bytes(first(bytes)?).into(),
            Self::I32 => i32::from_le_bytes(first(bytes)?).into(),
            Self::U32 => u32::from_le_bytes(first(bytes)?).into(),
            Self::F32 => f32::from_le_bytes(first(bytes)?).into(),
            Self::F64 => f64::from_le_bytes(first(bytes)?),
        })
    }
}
