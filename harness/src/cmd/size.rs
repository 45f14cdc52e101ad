//! Sizes as people write and read them.

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// `1.02 GiB`
pub fn text(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// Reads `8GiB`, `1.5 TiB`, `500000`, for a command line.
///
/// # Errors
/// Says what is wanted.
pub fn parse(text: &str) -> Result<u64, String> {
    let wanted =
        || format!("`{text}` is no size, wanted a number with {} or none", UNITS.join(", "));
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let unit = if unit.is_empty() { "B" } else { unit };
    let power = UNITS.iter().position(|known| *known == unit).ok_or_else(wanted)?;
    let number: f64 = number.parse().map_err(|_| wanted())?;
    Ok((number * 1024f64.powi(power as i32)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            [0, 1023, 1024, 1_100_000_000].map(text).join(" "),
            "0 B 1023 B 1.00 KiB 1.02 GiB"
        );
    }

    #[test]
    fn sizes_are_read() {
        for (text, wanted) in
            [("0", 0), ("500000", 500_000), ("8GiB", 8 << 30), ("1.5 KiB", 1536), ("7 B", 7)]
        {
            assert_eq!(parse(text), Ok(wanted));
        }
        for bad in ["", "GiB", "-1", "1.2.3", "8GB", "inf", "8 gib"] {
            assert!(parse(bad).unwrap_err().contains("is no size"), "{bad}");
        }
    }
}
