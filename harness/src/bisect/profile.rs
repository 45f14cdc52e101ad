//! Everything watched at once: the growth of the error, and differences that do not stay.

use std::collections::BTreeSet;

use super::{
    gap::{Gap, Threshold},
    report::LayerGap,
    search::Stop,
    walk::{Point, Walked},
};

/// Runs of both paths in which everything was watched.
pub(super) struct Sweep {
    walked: [Walked; 2],
    /// Points that both give, in the good path's order.
    points: Vec<Point>,
    /// Whether watching left the logits as they are.
    faithful: bool,
}

impl Sweep {
    pub(super) fn new(walked: [Walked; 2], faithful: bool) -> Self {
        let [good, bad] = &walked;
        let both = |point: &&Point| bad.has(point);
        let points = good.points().iter().filter(both).cloned().collect();
        Self { walked, points, faithful }
    }

    /// Points that both paths give.
    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Names that only one path gives.
    pub(super) fn one_sided(&self) -> Vec<String> {
        let [good, bad] = &self.walked;
        let only = |of: &Walked, other: &Walked| -> Vec<String> {
            let alone = of.points().iter().filter(|point| !other.has(point));
            alone.map(|point| point.name.clone()).collect()
        };
        let names: BTreeSet<_> = only(good, bad).into_iter().chain(only(bad, good)).collect();
        names.into_iter().collect()
    }

    fn gap(&self, point: &Point) -> Result<Option<Gap>, Stop> {
        let [good, bad] = &self.walked;
        Ok(bad.view(point)?.zip(good.view(point)?).map(|(got, want)| Gap::of(&got, &want)))
    }

    fn parts(&self, threshold: Threshold, at: usize) -> Result<bool, Stop> {
        Ok(self.gap(&self.points[at])?.is_some_and(|gap| threshold.parts(&gap)))
    }

    /// The first point of any call that parts; none where watching changed the answer.
    pub(super) fn first(&self, threshold: Threshold) -> Result<Option<usize>, Stop> {
        if !self.faithful {
            return Ok(None);
        }
        for at in 0..self.points.len() {
            if self.parts(threshold, at)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// The first point of the residual stream that does not part behind one that does, in its call.
    pub(super) fn equal_behind(
        &self,
        threshold: Threshold,
        behind: usize,
    ) -> Result<Option<Point>, Stop> {
        let call = self.points[behind].call;
        for (at, point) in self.points.iter().enumerate().skip(behind + 1) {
            if point.call == call && point.is_stream() && !self.parts(threshold, at)? {
                return Ok(Some(point.clone()));
            }
        }
        Ok(None)
    }

    /// The gaps of a call at the end of each layer and at what lies outside of layers.
    pub(super) fn profile(&self, call: usize) -> Result<Vec<LayerGap>, Stop> {
        if !self.faithful {
            return Ok(Vec::new());
        }
        let mut profile = Vec::new();
        for (at, point) in self.points.iter().enumerate().filter(|(_, p)| p.call == call) {
            let next = self.points.get(at + 1).filter(|next| next.call == call);
            let ends = point.layer().is_none() || next.and_then(Point::layer) != point.layer();
            if let Some(gap) = self.gap(point)?.filter(|_| ends) {
                profile.push(LayerGap { name: point.name.clone(), gap });
            }
        }
        Ok(profile)
    }
}
