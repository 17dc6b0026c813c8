//! Values that an option brings of others.

/// Options that are to be given where nothing is said of them.
pub(super) struct Implied {
    /// Name in messages.
    pub(super) origin: &'static str,
    /// The values, as a layer beneath all that is given.
    pub(super) text: &'static str,
}
