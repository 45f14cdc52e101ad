//! From the ends to one intermediate.

use super::{
    search::{Search, Stop},
    walk::{Point, Watch},
};

/// The first of the points of the last call that parts, as an index into `points`: the residual stream is
/// halved, one point watched at a time, then all points between its last equal one and its first other
/// one are watched.
///
/// Halving takes the stream for one that stays apart once it parts; an earlier difference that is
/// swallowed again is not its business.
pub(super) fn halve(search: &mut Search<'_>, points: &[Point]) -> Result<usize, Stop> {
    let call = search.call;
    let of_call = |at: &usize| points[*at].call == call;
    let stream: Vec<usize> =
        (0..points.len()).filter(of_call).filter(|&at| points[at].is_stream()).collect();
    // The stream begins equal, with the ids, and ends apart, with the logits.
    let (mut equal, mut apart) = (0, stream.len());
    while equal < apart {
        let middle = usize::midpoint(equal, apart);
        let point = &points[stream[middle]];
        let walked = search.probe(&Watch::some(call, [point.name.as_str()]))?;
        if search.parts(&walked, point)? { apart = middle } else { equal = middle + 1 }
    }
    let first = (0..points.len()).find(of_call).unwrap_or(0);
    let from = equal.checked_sub(1).map_or(first, |last| stream[last] + 1);
    let to = stream.get(apart).map_or(points.len(), |&at| at + 1);
    within(search, points, from..to)
}

fn within(
    search: &mut Search<'_>,
    points: &[Point],
    range: std::ops::Range<usize>,
) -> Result<usize, Stop> {
    let names = points[range.clone()].iter().map(|point| point.name.as_str());
    let walked = search.probe(&Watch::some(search.call, names))?;
    for at in range {
        if search.parts(&walked, &points[at])? {
            return Ok(at);
        }
    }
    Err(Stop::lost("the outputs part and nothing that can be watched does".to_owned()))
}
