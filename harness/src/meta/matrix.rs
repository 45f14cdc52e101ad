//! The meta matrix: every synthetic model over every kind of cache and every way through it.

use std::collections::{BTreeMap, BTreeSet};

use super::{KvPacking, MetaCase, Path, Relation, Route};
use crate::{
    case::{Case, Kind, Prompt},
    row::Tier,
    synthetic::Lane,
};

/// A synthetic model, as the matrix lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its `model_type`: a line of the printed matrix.
    pub model_type: String,
    /// Its folder's name.
    pub name: String,
}

/// The table of `goldens/cases/meta/matrix.toml`, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// The models, by type.
    pub models: Vec<Listed>,
    /// What all its checks are there to catch.
    pub why: String,
    /// The prompt of every cell.
    pub prompt: Prompt,
    /// As in [`MetaCase`].
    pub bits_on: Vec<String>,
    /// Models of `verify --quick`.
    pub quick: BTreeSet<String>,
    /// Names for sets of models, as `not_for` uses them.
    pub traits: BTreeMap<String, BTreeSet<String>>,
    /// Models without any check, each with the reason.
    pub left_out: BTreeMap<String, String>,
    /// A block of the printed matrix each.
    pub caches: Vec<CacheKind>,
    /// A column of the printed matrix each.
    pub columns: Vec<Column>,
}

/// One way to fill the caches.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheKind {
    /// Part of the case's id.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// How they are packed; absent, they are not.
    pub kv: Option<KvPacking>,
    /// Formats of the weights.
    pub lanes: Vec<Lane>,
    /// Traits or models that must refuse it, each with the reason: of those the refusal alone is checked.
    pub refused_for: BTreeMap<String, String>,
}

/// Checks of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// The checks of a cell.
    pub paths: Vec<Path>,
    /// Traits, cache kinds or models, or several at once (`kv8+window`), without a check here, each with
    /// the reason.
    pub not_for: BTreeMap<String, String>,
    /// The only traits or models with a check here, and why others have none; absent, all have.
    pub only_for: Option<(BTreeSet<String>, String)>,
    /// Traits or models whose checks are held to [`Relation::Near`], each with the reason.
    pub near_for: BTreeMap<String, String>,
}

/// What is in a cell of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Ids of its checks.
    Checks(Vec<String>),
    /// Why there is none.
    Empty(String),
}

/// Tokens behind a cut that are run one by one: from 9 on past a window of 16.
const ONE_BY_ONE: usize = 10;

/// The name of the matrix's cases: their ids start with `meta/matrix/`.
pub const NAME: &str = "matrix";

impl Matrix {
    /// A case for each model, cache kind and lane that has a check.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for cache in &self.caches {
            for model in &self.models {
                cases.extend(cache.lanes.iter().filter_map(|lane| self.case(model, cache, *lane)));
            }
        }
        cases
    }

    fn case(&self, model: &Listed, cache: &CacheKind, lane: Lane) -> Option<Case> {
        let filled = |column: &&Column| self.empty(model, cache, column).is_none();
        let columns = self.columns.iter().filter(filled);
        let paths: Vec<Path> = columns.flat_map(|column| self.paths(model, column)).collect();
        if paths.is_empty() {
            return None;
        }
        Some(Case {
            id: id(model, cache, lane),
            tier: Tier::Meta,
            why: self.why.clone(),
            kind: Kind::Meta(MetaCase {
                model: format!("{}-{}", model.name, lane.name()),
                prompt: self.prompt.clone(),
                bits_on: self.bits_on.clone(),
                quick: self.quick.contains(&model.name),
                kv: cache.kv,
                one_by_one: Some(ONE_BY_ONE),
                paths,
                config: Vec::new(),
                fuzz: None,
            }),
        })
    }

    /// A column's paths with what they are held to for a model.
    fn paths(&self, model: &Listed, column: &Column) -> Vec<Path> {
        let near = column.near_for.keys().any(|name| self.fits(model, name));
        let relation = |path: &Path| if near { Relation::Near } else { path.relation };
        column.paths.iter().map(|path| Path { relation: relation(path), ..path.clone() }).collect()
    }

    /// What a model, a cache kind and a column have in common.
    pub fn cell(&self, model: &Listed, cache: &CacheKind, column: &Column) -> Cell {
        if let Some(reason) = self.empty(model, cache, column) {
            return Cell::Empty(reason.to_owned());
        }
        let checks = cache.lanes.iter().flat_map(|lane| {
            let case = id(model, cache, *lane);
            column.paths.iter().map(move |path| format!("{case}/{}", path.route.name()))
        });
        Cell::Checks(checks.collect())
    }

    /// Why there is no check.
    fn empty<'a>(
        &'a self,
        model: &Listed,
        cache: &'a CacheKind,
        column: &'a Column,
    ) -> Option<&'a str> {
        if let Some(reason) = self.left_out.get(&model.name) {
            return Some(reason);
        }
        let refused = cache.refused_for.iter().find(|(name, _)| self.fits(model, name));
        if column.refusal() {
            return refused.is_none().then_some("nothing here is refused");
        }
        if let Some((_, reason)) = refused {
            return Some(reason);
        }
        if let Some((names, reason)) = &column.only_for
            && !names.iter().any(|name| self.fits(model, name))
        {
            return Some(reason);
        }
        let fits = |name: &str| name == cache.name || self.fits(model, name);
        let unchecked = |names: &String| names.split('+').all(fits);
        column.not_for.iter().find(|(name, _)| unchecked(name)).map(|(_, reason)| reason.as_str())
    }

    /// Whether a name is the model's or that of one of its traits.
    fn fits(&self, model: &Listed, name: &str) -> bool {
        let has = |models: &BTreeSet<String>| models.contains(&model.name);
        name == model.name || self.traits.get(name).is_some_and(has)
    }
}

impl Column {
    /// Whether it checks that a composition is refused.
    fn refusal(&self) -> bool {
        self.paths.iter().any(|path| path.route == Route::RefusedComposition)
    }
}

fn id(model: &Listed, cache: &CacheKind, lane: Lane) -> String {
    format!("{}/{NAME}/{}/{}-{}", Tier::Meta.name(), cache.name, model.name, lane.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Relation;

    fn one(name: &str) -> BTreeSet<String> {
        BTreeSet::from([name.to_owned()])
    }

    fn reason(name: &str, why: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), why.to_owned())])
    }

    fn column(name: &str, route: Route) -> Column {
        let paths = vec![Path { route, relation: Relation::Bits }];
        let (not_for, near_for) = (BTreeMap::new(), BTreeMap::new());
        Column { name: name.to_owned(), paths, not_for, only_for: None, near_for }
    }

    fn matrix() -> Matrix {
        let listed = |name: &str| Listed { model_type: "t".to_owned(), name: name.to_owned() };
        let cache = |name: &str, refused_for| CacheKind {
            name: name.to_owned(),
            title: String::new(),
            kv: None,
            lanes: vec![Lane::F32],
            refused_for,
        };
        let trim = Column {
            not_for: reason("kv+turns", "both"),
            near_for: reason("turns", "order"),
            ..column("trim", Route::Trim { at: 2, tokens: 1 })
        };
        let only = (one("turns"), "others do not".to_owned());
        let refused =
            Column { only_for: Some(only), ..column("refused", Route::RefusedTrim { at: 2 }) };
        Matrix {
            models: ["plain", "turning", "narrow", "gone"].map(listed).to_vec(),
            why: "test".to_owned(),
            prompt: Prompt::Ids(vec![1, 2, 3]),
            bits_on: Vec::new(),
            quick: BTreeSet::new(),
            traits: BTreeMap::from([("turns".to_owned(), one("turning"))]),
            left_out: reason("gone", "it is"),
            caches: vec![cache("own", BTreeMap::new()), cache("kv", reason("narrow", "16"))],
            columns: vec![column("no", Route::RefusedComposition), trim, refused],
        }
    }

    fn shown(cell: Cell) -> String {
        match cell {
            Cell::Checks(checks) => checks.join(" "),
            Cell::Empty(reason) => format!("({reason})"),
        }
    }

    #[test]
    fn every_cell_has_checks_or_a_reason() {
        let matrix = matrix();
        let row = |model: usize, cache: usize| {
            let (model, cache) = (&matrix.models[model], &matrix.caches[cache]);
            let cells = matrix.columns.iter().map(|column| matrix.cell(model, cache, column));
            cells.map(shown).collect::<Vec<_>>().join(" | ")
        };
        let id = "meta/matrix";
        assert_eq!(
            row(0, 0),
            format!("(nothing here is refused) | {id}/own/plain-f32/trim-1-at-2 | (others do not)")
        );
        assert_eq!(
            row(1, 1),
            format!("(nothing here is refused) | (both) | {id}/kv/turning-f32/refused-trim-at-2")
        );
        assert_eq!(row(2, 1), format!("{id}/kv/narrow-f32/refused-composition | (16) | (16)"));
        assert_eq!(row(3, 0), "(it is) | (it is) | (it is)");
    }

    #[test]
    fn the_checks_of_the_cells_are_those_of_the_cases() {
        let matrix = matrix();
        let mut cells = Vec::new();
        for (model, cache) in
            matrix.models.iter().flat_map(|model| matrix.caches.iter().map(move |c| (model, c)))
        {
            for column in &matrix.columns {
                if let Cell::Checks(checks) = matrix.cell(model, cache, column) {
                    cells.extend(checks);
                }
            }
        }
        let mut checks: Vec<String> = matrix.cases().iter().flat_map(Case::checks).collect();
        cells.sort();
        checks.sort();
        assert_eq!(cells, checks);
        assert!(!cells.is_empty());
    }

    #[test]
    fn a_trait_loosens_its_models_alone() {
        let relations = |model: &str| -> Vec<Relation> {
            let id = format!("meta/matrix/own/{model}-f32");
            let case = matrix().cases().into_iter().find(|case| case.id == id).unwrap();
            let Kind::Meta(meta) = case.kind else { panic!() };
            meta.paths.iter().map(|path| path.relation).collect()
        };
        assert_eq!(relations("plain"), [Relation::Bits]);
        assert_eq!(relations("turning"), [Relation::Near, Relation::Bits]);
    }
}
