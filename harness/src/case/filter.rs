//! Choosing cases by id, tier and shard.

use super::{Case, Kind};
use crate::row::Tier;

/// A selection of cases. Empty fields select everything.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Substrings of the id; one that fits is enough.
    pub ids: Vec<String>,
    /// Tiers.
    pub tiers: Vec<Tier>,
    /// Of tiers ops, vjp, meta and metal, only the cases marked quick; other tiers are left as they are.
    pub quick: bool,
    /// The ops and trajectories marked large too.
    pub large: bool,
    /// `(i, n)`: every n-th case starting with the i-th, counted from 1.
    pub shard: Option<(usize, usize)>,
}

impl Filter {
    /// The selected cases, in plan order.
    pub fn select(&self, cases: Vec<Case>) -> Vec<Case> {
        let chosen = cases.into_iter().filter(|case| self.fits(case));
        match self.shard {
            None => chosen.collect(),
            Some((index, count)) => chosen.skip(index - 1).step_by(count).collect(),
        }
    }

    fn fits(&self, case: &Case) -> bool {
        let tier = self.tiers.is_empty() || self.tiers.contains(&case.tier);
        // A filter may also name one check of a case, as rows and replay lines do.
        let id = self.ids.is_empty()
            || self.ids.iter().any(|part| {
                case.id.contains(part.as_str()) || part.starts_with(&format!("{}/", case.id))
            });
        tier && id && self.fits_size(case)
    }

    fn fits_size(&self, case: &Case) -> bool {
        match &case.kind {
            Kind::Op(op) => (op.quick || !self.quick) && (self.large || !op.large),
            Kind::Meta(meta) => meta.quick || !self.quick,
            Kind::Metal(metal) => metal.quick || !self.quick,
            Kind::Vjp(vjp) => vjp.quick || !self.quick,
            Kind::Trajectory(trajectory) => self.large || !trajectory.large,
            Kind::Replay(_) | Kind::Denoise(_) | Kind::Deviation(_) | Kind::Gate(_) => true,
        }
    }
}

/// Reads `i/n` with 1 ≤ i ≤ n.
pub fn parse_shard(text: &str) -> Result<(usize, usize), String> {
    let wanted = || format!("`{text}` is no shard, wanted i/n with 1 <= i <= n");
    let (index, count) = text.split_once('/').ok_or_else(wanted)?;
    let index: usize = index.parse().map_err(|_| wanted())?;
    let count: usize = count.parse().map_err(|_| wanted())?;
    if index == 0 || index > count { Err(wanted()) } else { Ok((index, count)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{DecodeFrom, Kind, Prompt, Replay};

    fn cases() -> Vec<Case> {
        ["l1/a/x", "l1/a/y", "l1/b/x", "l1/b/y", "l1/c/x"]
            .map(|id| Case {
                id: id.into(),
                tier: Tier::L1,
                why: "test".into(),
                kind: Kind::Replay(Replay {
                    model: "m".into(),
                    oracle: "mlx-lm".into(),
                    prompt: Prompt::Ids(vec![1]),
                    decode: 1,
                    decode_from: DecodeFrom::Greedy,
                    prefill_step: 1,
                    not_frozen: None,
                    degenerate_because: None,
                    adapter: None,
                    composition: None,
                }),
            })
            .into()
    }

    fn ids(filter: &Filter) -> Vec<String> {
        filter.select(cases()).into_iter().map(|case| case.id).collect()
    }

    #[test]
    fn selects_by_part_of_an_id_or_by_one_check() {
        let by = |id: &str| ids(&Filter { ids: vec![id.into()], ..Filter::default() });
        assert_eq!(by("b/"), ["l1/b/x", "l1/b/y"]);
        assert_eq!(by("l1/a/x/decode/step-001"), ["l1/a/x"]);
        assert!(by("nowhere").is_empty());
    }

    #[test]
    fn shards_are_disjoint_and_complete() {
        let mut all: Vec<String> = (1..=3)
            .flat_map(|i| ids(&Filter { shard: Some((i, 3)), ..Filter::default() }))
            .collect();
        all.sort();
        assert_eq!(all, ids(&Filter::default()));
        for bad in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(parse_shard(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_tier_selects_nothing() {
        assert!(ids(&Filter { tiers: vec![Tier::Ops], ..Filter::default() }).is_empty());
    }
}
