//! E1: the bits of the baseline.

use mlx_parity_tensor::HostTensor;

use crate::compare::bit_exact;

/// Where results differ from the baseline's in their bits; none where they do not.
pub fn check(results: &[HostTensor], baseline: &[HostTensor]) -> Option<String> {
    results.iter().zip(baseline).enumerate().find_map(|(k, (found, wanted))| {
        let report = bit_exact(&found.view(), &wanted.view());
        (!report.is_exact()).then(|| format!("result {k}{}", first(found, wanted)))
    })
}

/// `[0, 17]: got 0x41a3 (20.375), want 0x41a2 (20.25); 212 of 1024 differ`
fn first(found: &HostTensor, wanted: &HostTensor) -> String {
    if found.shape() != wanted.shape() || found.dtype() != wanted.dtype() {
        let form = |of: &HostTensor| format!("{} {:?}", of.dtype(), of.shape());
        return format!(": {}, wanted {}", form(found), form(wanted));
    }
    let differs = |at: &usize| found.bits_at(*at) != wanted.bits_at(*at);
    let count = (0..found.len()).filter(differs).count();
    let at = (0..found.len()).find(differs).unwrap_or_default();
    let told = |of: &HostTensor| {
        let digits = 2 * of.dtype().size();
        format!("{:#0width$x} ({})", of.bits_at(at), of.value_at(at), width = digits + 2)
    };
    let place = super::place(found.shape(), at);
    format!(
        "{place}: got {}, want {}; {count} of {} differ",
        told(found),
        told(wanted),
        found.len()
    )
}
