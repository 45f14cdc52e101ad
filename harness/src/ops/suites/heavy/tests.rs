//! Known-wrong subjects of these suites: each convention is caught and named, and half accumulators
//! and lost tails are caught.

use std::collections::BTreeMap;

use mlx_parity_oracles::{Convention, ops::Op};
use mlx_parity_tensor::{Dtype, HostTensor, Layout};
use rstest::rstest;

use crate::compare::Zeros;
use crate::ops::{
    Argument, Bound, Call, Fake, Generator, Reply, Source, Subject, SuiteError, Verdict, judge,
    suite,
};

const HALVES: [Dtype; 2] = [Dtype::F16, Dtype::Bf16];
const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// `"m=3,mask=causal"` as arguments.
fn call(op: Op, dtype: Dtype, generator: Generator, arguments: &str) -> Call {
    let one = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap();
        let int = value.parse().ok().map(Argument::Int);
        let value = int
            .or_else(|| value.parse().ok().map(Argument::Bool))
            .unwrap_or_else(|| Argument::Text(value.to_owned()));
        (name.to_owned(), value)
    };
    let arguments: BTreeMap<_, _> = arguments.split(',').map(one).collect();
    Call { op, dtype, generator, arguments }
}

/// Answers what it was given.
struct Given(Vec<HostTensor>);

impl Subject for Given {
    fn reply(&self, _: &Call, operands: &[HostTensor], _: Layout) -> Result<Reply, SuiteError> {
        let (outputs, operands_after) = (self.0.clone(), operands.to_vec());
        Ok(Reply { outputs, operands_after, engine_ms: 0.0 })
    }
}

/// As the tolerance table allows.
fn bound(call: &Call) -> Bound {
    let units = match (call.dtype, call.op) {
        (Dtype::F32, _) => 4.0,
        (_, Op::RmsNorm | Op::LayerNorm | Op::GroupNorm | Op::Rope | Op::CrossEntropy) => 2.5,
        _ => 1.0,
    };
    Bound { units, zeros: Zeros::Unsigned }
}

fn verdict(call: &Call, subject: &dyn Subject) -> Verdict {
    judge(call, false, bound(call), subject).unwrap()
}

fn operands(call: &Call) -> Vec<HostTensor> {
    suite(call.op).operands(call, &mut Source::new(call.seed())).unwrap()
}

#[rstest]
#[case(Op::RmsNorm, "rows=3,n=64,weight=plain", &[Convention::NormWithOne])]
#[case(Op::RmsNorm, "rows=3,n=64,weight=one-plus", &[Convention::NormWithoutOne])]
#[case(Op::GroupNorm, "batch=2,positions=5,channels=8,groups=2,order=strided", &[Convention::GroupOrder])]
#[case(Op::Rope, "batch=2,heads=2,tokens=3,dim=16,traditional=true,offset=7", &[Convention::RopePairing])]
#[case(Op::Sdpa, "heads=2,queries=3,keys=9,dim=32,mask=causal", &[Convention::CausalTopLeft])]
#[case(Op::Sdpa, "heads=2,queries=3,keys=9,dim=32,mask=bool", &[Convention::MaskAdded, Convention::MaskInverted])]
#[case(Op::Sdpa, "heads=2,queries=3,keys=9,dim=32,mask=additive", &[Convention::MaskAsBoolean])]
#[case(Op::Sdpa, "heads=2,queries=9,keys=9,dim=32,mask=window,window=3",
    &[Convention::MaskAdded, Convention::MaskInverted, Convention::WindowPlusOne, Convention::WindowMinusOne])]
#[case(Op::QuantizedSdpa, "heads=2,queries=3,keys=9,dim=32,group=32,bits=8,mask=causal", &[Convention::CausalTopLeft])]
fn each_convention_is_caught_and_named(
    #[case] op: Op,
    #[case] arguments: &str,
    #[case] wanted: &[Convention],
) {
    for dtype in FLOATS {
        let call = call(op, dtype, Generator::Random, arguments);
        assert!(verdict(&call, &Fake::default()).held, "{dtype}");
        let known = suite(op).conventions(&call, &operands(&call)).unwrap();
        assert_eq!(known.iter().map(|(name, _)| *name).collect::<Vec<_>>(), wanted);
        for (convention, answers) in known {
            let outputs =
                answers.iter().map(|answer| super::operand::rounded(dtype, &answer.value));
            let found = verdict(&call, &Given(outputs.collect::<Result<_, _>>().unwrap()));
            assert!(!found.held, "{dtype} {convention:?}");
            assert_eq!(found.convention, Some(convention), "{dtype}");
        }
    }
}

/// Products summed in the output dtype, one term after the other.
fn half_sums(x: &HostTensor, w: &HostTensor) -> HostTensor {
    let (m, k, n) = (x.shape()[0], x.shape()[1], w.shape()[1]);
    let (a, b) = (x.to_f64(), w.to_f64());
    let round = |v: f64| HostTensor::from_f64_as(x.dtype(), [1], &[v]).unwrap().value_at(0);
    let sum = |i: usize| {
        (0..k).fold(0.0, |sum, t| round(sum + round(a[i / n * k + t] * b[t * n + i % n])))
    };
    let values: Vec<f64> = (0..m * n).map(sum).collect();
    HostTensor::from_f64_as(x.dtype(), [m, n], &values).unwrap()
}

#[test]
fn a_half_accumulator_is_caught_on_random_numbers_and_on_ones() {
    for dtype in HALVES {
        for (generator, k) in [(Generator::Random, "257"), (Generator::Ones, "4097")] {
            let call = call(Op::Matmul, dtype, generator, &format!("m=3,n=5,k={k}"));
            let operands = operands(&call);
            let found = verdict(&call, &Given(vec![half_sums(&operands[0], &operands[1])]));
            assert!(!found.held, "{dtype} {generator:?}");
            assert!(verdict(&call, &Fake::default()).held);
        }
    }
}

/// Answers on operands whose last feature is lost.
struct LostTail;

impl Subject for LostTail {
    fn reply(&self, call: &Call, operands: &[HostTensor], _: Layout) -> Result<Reply, SuiteError> {
        let mut values = operands[0].to_f64();
        let width = operands[0].shape()[operands[0].shape().len() - 1];
        for row in values.chunks_mut(width) {
            row[width - 1] = 0.0;
        }
        let lost = HostTensor::from_f64_as(operands[0].dtype(), operands[0].shape(), &values)?;
        let seen = [vec![lost], operands[1..].to_vec()].concat();
        let answers = suite(call.op).reference(call, &seen)?;
        let rounded = answers.iter().map(|a| super::operand::rounded(call.dtype, &a.value));
        let outputs = rounded.collect::<Result<_, _>>()?;
        Ok(Reply { outputs, operands_after: operands.to_vec(), engine_ms: 0.0 })
    }
}

#[rstest]
#[case(Op::Matmul, "m=3,k=2049,n=5")]
#[case(Op::QuantizedMatmul, "m=3,k=4096,n=5")]
#[case(Op::QuantizedMatmul, "m=3,k=96,n=32,group=32,transpose=false,accumulate=output")]
#[case(Op::GatherQmm, "a_batch=4,b_batch=2,picks=4,m=1,k=128,n=5")]
#[case(Op::RmsNorm, "rows=3,n=4097")]
#[case(Op::LayerNorm, "rows=3,n=4097")]
#[case(Op::Sdpa, "heads=2,queries=3,keys=9,dim=512")]
#[case(Op::QuantizedSdpa, "heads=2,queries=3,keys=9,dim=64,group=32")]
#[case(Op::Conv1d, "batch=1,length=6,in=1024,out=3,taps=4")]
#[case(Op::CrossEntropy, "rows=3,classes=50000")]
fn a_lost_tail_is_caught_where_the_needle_lies(#[case] op: Op, #[case] arguments: &str) {
    for dtype in FLOATS {
        let call = call(op, dtype, Generator::NeedleLast, arguments);
        assert!(!verdict(&call, &LostTail).held, "{dtype}");
        assert!(verdict(&call, &Fake::default()).held, "{dtype}");
    }
}
