//! Switches that take a value.

/// Reads a switch; Python's spelling is welcome (`--eval True`).
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}
