//! Which levers are pulled.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use mlx_parity_kernels::{CANDIDATES, Claim, How, candidate};

use crate::error::EngineError;

/// Overrides every policy: `fused_swiglu=on,fused_mlp=off`.
pub const ENVIRONMENT: &str = "MLX_PARITY_KERNELS";

/// The position of one lever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Switch {
    /// The composed ops.
    #[default]
    Off,
    /// The kernel where the ledger promotes it, the composed ops elsewhere.
    Promoted,
    /// The kernel, wherever a model offers a call with enough rows; one that it does not take is an error.
    On,
}

/// One lever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lever {
    /// Its position.
    pub switch: Switch,
    /// The bug that the kernel is to have; none outside builds with mutants.
    pub mutant: Option<&'static str>,
    /// Calls of a decoder that the kernel takes; composed ops take those behind them. With it the call that
    /// goes wrong can be bisected.
    pub cap: Option<u64>,
}

/// The levers of all candidates, and where they stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Those that are not off.
    levers: Vec<(&'static str, Lever)>,
}

impl Policy {
    /// No kernel, for tier L1.
    pub fn l1() -> Self {
        Self::default()
    }

    /// The promoted ones that claim their baseline's bits, for tier L2.
    pub fn l2() -> Self {
        Self::promoted(|claim| claim == Claim::Exact)
    }

    /// Every promoted one, for tier L3.
    pub fn l3() -> Self {
        Self::promoted(|_| true)
    }

    fn promoted(wanted: impl Fn(Claim) -> bool) -> Self {
        let specs = CANDIDATES.iter().map(|candidate| candidate.spec());
        let lever = Lever { switch: Switch::Promoted, ..Lever::default() };
        Self {
            levers: specs.filter(|spec| wanted(spec.claim)).map(|spec| (spec.id, lever)).collect(),
        }
    }

    /// Puts levers where `text` says: `ID=off|promoted|on|mutant:NAME`, each with `@N` behind it for the
    /// first N calls only, separated by commas.
    ///
    /// # Errors
    /// [`EngineError::Lever`] for a kernel, a position or a mutant that does not exist.
    pub fn with(mut self, text: &str) -> Result<Self, EngineError> {
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (id, lever) = parse(part.trim())?;
            self.levers.retain(|(known, _)| *known != id);
            if lever.switch != Switch::Off {
                self.levers.push((id, lever));
            }
        }
        self.levers.sort_unstable_by_key(|(id, _)| *id);
        Ok(self)
    }

    /// The same under what the variable [`ENVIRONMENT`] says.
    ///
    /// # Errors
    /// As [`Policy::with`].
    pub fn with_environment(self) -> Result<Self, EngineError> {
        match std::env::var(ENVIRONMENT) {
            Ok(text) => self.with(&text),
            Err(std::env::VarError::NotPresent) => Ok(self),
            Err(std::env::VarError::NotUnicode(text)) => {
                Err(wrong(&text.to_string_lossy(), "text in UTF-8"))
            }
        }
    }

    /// Where a lever stands.
    pub fn lever(&self, id: &str) -> Lever {
        self.levers
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, lever)| *lever)
            .unwrap_or_default()
    }

    /// Whether no lever is pulled.
    pub fn is_l1(&self) -> bool {
        self.levers.is_empty()
    }
}

fn parse(part: &str) -> Result<(&'static str, Lever), EngineError> {
    let wanted = "ID=off|promoted|on|mutant:NAME, with or without @CALLS behind it";
    let (id, position) = part.split_once('=').ok_or_else(|| wrong(part, wanted))?;
    let known = || CANDIDATES.iter().map(|one| one.spec().id).collect::<Vec<_>>().join(", ");
    let spec = candidate(id.trim())
        .ok_or_else(|| wrong(part, &format!("one of the kernels {}", known())))?
        .spec();
    let (position, cap) = match position.trim().split_once('@') {
        Some((position, calls)) => {
            (position, Some(calls.parse().map_err(|_| wrong(part, "a number of calls behind @"))?))
        }
        None => (position.trim(), None),
    };
    let (switch, mutant) = match position {
        "off" => (Switch::Off, None),
        "promoted" => (Switch::Promoted, None),
        "on" => (Switch::On, None),
        _ => {
            let name = position.strip_prefix("mutant:").ok_or_else(|| wrong(part, wanted))?;
            let mutants = || {
                spec.mutants.iter().filter(|one| one.host).map(|one| one.name).collect::<Vec<_>>()
            };
            let found = mutants().into_iter().find(|known| *known == name);
            let named = format!("one of the mutants {}", mutants().join(", "));
            let mutant = found.ok_or_else(|| wrong(part, &named))?;
            if !How::MUTANTS {
                return Err(wrong(part, "a build with debug assertions, for a mutant"));
            }
            (Switch::On, Some(mutant))
        }
    };
    Ok((spec.id, Lever { switch, mutant, cap }))
}

fn wrong(found: &str, wanted: &str) -> EngineError {
    EngineError::Lever { found: found.to_owned(), wanted: wanted.to_owned() }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (id, lever)) in self.levers.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{id}=")?;
            match (lever.mutant, lever.switch) {
                (Some(mutant), _) => write!(f, "mutant:{mutant}")?,
                (None, Switch::Off) => f.write_str("off")?,
                (None, Switch::Promoted) => f.write_str("promoted")?,
                (None, Switch::On) => f.write_str("on")?,
            }
            if let Some(cap) = lever.cap {
                write!(f, "@{cap}")?;
            }
        }
        Ok(())
    }
}

/// The policy of the model call that is under way, and the calls its kernels have taken.
#[derive(Debug, Default)]
pub(crate) struct Active {
    pub(super) policy: Policy,
    calls: RefCell<Vec<(&'static str, u64)>>,
}

impl Active {
    /// Of a decoder at its start.
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, calls: RefCell::default() }
    }

    /// Counts a call of a kernel, unless it is one too many.
    pub(super) fn takes(&self, id: &'static str, cap: Option<u64>) -> bool {
        let Some(cap) = cap else { return true };
        let mut calls = self.calls.borrow_mut();
        let at = calls.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
            calls.push((id, 0));
            calls.len() - 1
        });
        calls[at].1 += 1;
        calls[at].1 <= cap
    }
}

thread_local! {
    static ACTIVE: RefCell<Option<Rc<Active>>> = const { RefCell::new(None) };
}

/// Runs `work`, a model call, under a policy.
pub(crate) fn scope<T>(active: &Rc<Active>, work: impl FnOnce() -> T) -> T {
    /// Puts the policy back that was there before, whatever `work` does.
    struct Restore(Option<Rc<Active>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.replace(self.0.take());
        }
    }
    let inner = (!active.policy.is_l1()).then(|| Rc::clone(active));
    let _restore = Restore(ACTIVE.replace(inner));
    work()
}

/// The policy of the model call that is under way; none where no lever is pulled.
pub(super) fn active() -> Option<Rc<Active>> {
    ACTIVE.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_says_of_itself_makes_it_again() {
        let policy = Policy::l1().with("fused_swiglu=on@3, fused_geglu=promoted").unwrap();
        assert_eq!(policy.to_string(), "fused_geglu=promoted,fused_swiglu=on@3");
        assert_eq!(Policy::l1().with(&policy.to_string()).unwrap(), policy);
        assert_eq!(policy.lever("fused_swiglu").cap, Some(3));
        assert_eq!(policy.lever("fused_mlp"), Lever::default());
    }

    #[test]
    fn presets_follow_claims() {
        assert!(Policy::l1().is_l1());
        let switch = |policy: &Policy, id| policy.lever(id).switch;
        assert_eq!(switch(&Policy::l2(), "fused_swiglu"), Switch::Promoted);
        assert_eq!(switch(&Policy::l2(), "fused_mlp"), Switch::Off);
        assert_eq!(switch(&Policy::l3(), "fused_mlp"), Switch::Promoted);
        assert!(Policy::l3().with("fused_mlp=off").unwrap().lever("fused_mlp") == Lever::default());
    }

    #[test]
    fn a_capped_kernel_takes_so_many_calls() {
        let active = Active::new(Policy::l1());
        let taken: Vec<_> = (0..4).map(|_| active.takes("fused_swiglu", Some(2))).collect();
        assert_eq!(taken, [true, true, false, false]);
        assert!(active.takes("fused_swiglu", None));
    }

    #[test]
    fn a_policy_ends_with_its_call() {
        let on = Rc::new(Active::new(Policy::l1().with("fused_swiglu=on").unwrap()));
        let off = Rc::new(Active::new(Policy::l1()));
        scope(&on, || {
            assert!(active().is_some());
            scope(&off, || assert!(active().is_none()));
            assert!(active().is_some());
        });
        assert!(active().is_none());
    }
}
