//! Whether others use this machine while it is timed.

use std::fs;

/// Most of the machine that others may use while times are taken.
pub(super) const MOST: f64 = 0.10;

/// Processor time, in ticks, since the start of the machine and of this process; none where the system does not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    all: f64,
    idle: f64,
    own: f64,
}

impl Load {
    /// Now (Linux: `proc(5)`, `/proc/stat` and `/proc/self/stat`).
    pub(super) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Self::read(&stat, &own)
    }

    fn read(stat: &str, own: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // Guests are counted in user time already.
        let ticks: Vec<f64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        // The name may hold blanks; it ends at the last bracket. utime and stime are the 14th and 15th field.
        let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let own: f64 =
            fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        Some(Self { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)?, own })
    }

    /// The part of the machine that others have used since.
    pub(super) fn others_until(self, later: Self) -> f64 {
        let all = later.all - self.all;
        let busy = all - (later.idle - self.idle) - (later.own - self.own);
        if all > 0.0 { (busy / all).max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn others_are_what_is_neither_idle_nor_own() {
        let stat = |user, idle| format!("cpu  {user} 0 100 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n");
        let own = |utime: u32| format!("7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {utime} 50 0 0 20 0");
        let before = Load::read(&stat(1000, 5000), &own(300)).unwrap();
        let after = Load::read(&stat(1300, 5100), &own(500)).unwrap();
        assert_eq!(before.others_until(after), 100.0 / 400.0);
        assert_eq!(before.others_until(before), 0.0);
        assert_eq!(Load::read("intr 1", &own(1)), None);
    }
}
