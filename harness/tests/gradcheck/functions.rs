//! The functions that faults are planted in, with their gradients by hand.

/// f(x) = A·x with A of 256².
pub mod linear {
    use mlx_parity::ops::{Generator, Source};

    use crate::planted::{Function, Values};

    const N: usize = 256;

    pub const FUNCTION: Function = Function {
        shapes: &[&[N]],
        output: &[N],
        value: |x| times(&x[0], false),
        gradient,
        generator: Generator::Random,
        kinks: &[],
    };

    pub fn gradient(_: Values<'_>, c: &[f64]) -> Vec<Vec<f64>> {
        vec![times(c, true)]
    }

    /// A·x, or Aᵀ·x.
    pub fn times(x: &[f64], transposed: bool) -> Vec<f64> {
        static MATRIX: std::sync::OnceLock<Vec<f64>> = std::sync::OnceLock::new();
        let a = MATRIX.get_or_init(|| {
            let mut source = Source::new(256);
            (0..N * N).map(|_| source.bell()).collect()
        });
        let entry = |i: usize, j: usize| if transposed { a[j * N + i] } else { a[i * N + j] };
        (0..N).map(|i| (0..N).map(|j| entry(i, j) * x[j]).sum()).collect()
    }
}

/// sin of 1000 elements.
pub mod sine {
    use mlx_parity::ops::Generator;

    use crate::planted::{Function, Values};

    pub const FUNCTION: Function = Function {
        shapes: &[&[1000]],
        output: &[1000],
        value: |x| x[0].iter().map(|x| x.sin()).collect(),
        gradient,
        generator: Generator::Random,
        kinks: &[],
    };

    pub fn gradient(x: Values<'_>, c: &[f64]) -> Vec<Vec<f64>> {
        vec![x[0].iter().zip(c).map(|(x, c)| c * x.cos()).collect()]
    }
}

/// x·W with x of 8 and 4096 columns: gradients are sums of 4096 terms.
pub mod wide {
    use mlx_parity::ops::{Generator, Source};

    use crate::planted::{Function, Values};

    const N: usize = 4096;

    pub const FUNCTION: Function = Function {
        shapes: &[&[8]],
        output: &[N],
        value,
        gradient: |_, c| vec![gradient_with(c, |sum, term| sum + term)],
        generator: Generator::Random,
        kinks: &[],
    };

    fn value(x: Values<'_>) -> Vec<f64> {
        let weights = weights();
        (0..N).map(|j| (0..8).map(|i| x[0][i] * weights[i * N + j]).sum()).collect()
    }

    fn weights() -> &'static [f64] {
        static WEIGHTS: std::sync::OnceLock<Vec<f64>> = std::sync::OnceLock::new();
        WEIGHTS.get_or_init(|| {
            let mut source = Source::new(4096);
            (0..8 * N).map(|_| source.bell()).collect()
        })
    }

    pub fn gradient_with(c: &[f64], add: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let weights = weights();
        (0..8).map(|i| (0..N).fold(0.0, |sum, j| add(sum, c[j] * weights[i * N + j]))).collect()
    }
}

/// The mean of 64 squares.
pub mod mean {
    use mlx_parity::ops::Generator;

    use crate::planted::{Function, Values};

    pub const FUNCTION: Function = Function {
        shapes: &[&[64]],
        output: &[1],
        value: |x| vec![x[0].iter().map(|x| x * x).sum::<f64>() / 64.0],
        gradient,
        generator: Generator::Random,
        kinks: &[],
    };

    pub fn gradient(x: Values<'_>, c: &[f64]) -> Vec<Vec<f64>> {
        vec![x[0].iter().map(|x| 2.0 * c[0] * x / 64.0).collect()]
    }
}

/// Softmax of rows.
pub mod softmax {
    use mlx_parity::ops::Generator;

    use crate::planted::{Function, Values};

    pub const WIDTH: usize = 33;

    pub const FUNCTION: Function = Function {
        shapes: &[&[6, WIDTH]],
        output: &[6, WIDTH],
        value: |x| x[0].chunks(WIDTH).flat_map(super::rows::softmax).collect(),
        gradient: |x, c| gradient_over(x, c, WIDTH),
        generator: Generator::Random,
        kinks: &[],
    };

    /// The gradient with the first `terms` terms of each row's sum.
    pub fn gradient_over(x: Values<'_>, c: &[f64], terms: usize) -> Vec<Vec<f64>> {
        let rows = x[0].chunks(WIDTH).zip(c.chunks(WIDTH));
        let gradient = rows.flat_map(|(x, c)| {
            let p = super::rows::softmax(x);
            let sum: f64 = p.iter().zip(c).take(terms).map(|(p, c)| p * c).sum();
            p.iter().zip(c).map(|(p, c)| p * (c - sum)).collect::<Vec<_>>()
        });
        vec![gradient.collect()]
    }
}

/// Rows of a table by indices, some twice.
pub mod gather {
    use mlx_parity::ops::Generator;

    use crate::planted::Function;

    const WIDTH: usize = 5;
    const ROWS: usize = 9;
    const AT: [usize; 6] = [3, 0, 3, 7, 1, 7];

    pub const FUNCTION: Function = Function {
        shapes: &[&[ROWS, WIDTH]],
        output: &[AT.len(), WIDTH],
        value: |x| AT.iter().flat_map(|at| x[0][at * WIDTH..][..WIDTH].to_vec()).collect(),
        gradient: |_, c| scattered(c, false, 0),
        generator: Generator::Random,
        kinks: &[],
    };

    pub fn scattered(c: &[f64], assign: bool, off: usize) -> Vec<Vec<f64>> {
        let mut gradient = vec![0.0; ROWS * WIDTH];
        for (at, c) in AT.iter().zip(c.chunks(WIDTH)) {
            let row = &mut gradient[(at + off) * WIDTH..][..WIDTH];
            row.iter_mut().zip(c).for_each(|(g, c)| *g = if assign { *c } else { *g + c });
        }
        vec![gradient]
    }
}

/// Causal attention of two query heads over one head of keys and values.
pub mod attention {
    use mlx_parity::ops::Generator;

    use crate::planted::{Function, Values};

    pub const KEYS: usize = 8;
    pub const DIM: usize = 8;
    const HEADS: usize = 2;
    const SCALE: f64 = 0.353_553_390_593_273_8;

    pub const FUNCTION: Function = Function {
        shapes: &[&[HEADS, KEYS, DIM], &[KEYS, DIM], &[KEYS, DIM]],
        output: &[HEADS, KEYS, DIM],
        value,
        gradient,
        generator: Generator::Random,
        kinks: &[],
    };

    /// What is wrong with a gradient.
    #[derive(Clone, Copy)]
    pub struct Wrong {
        pub unscaled: bool,
        pub unmasked: bool,
        pub one_head: bool,
    }

    pub const RIGHT: Wrong = Wrong { unscaled: false, unmasked: false, one_head: false };

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    fn row(x: &[f64], at: usize) -> &[f64] {
        &x[at * DIM..][..DIM]
    }

    /// Weights of one query over the first `seen` keys.
    fn weights(q: &[f64], k: &[f64], seen: usize) -> Vec<f64> {
        let scores: Vec<f64> = (0..seen).map(|key| SCALE * dot(q, row(k, key))).collect();
        super::rows::softmax(&scores)
    }

    fn value(x: Values<'_>) -> Vec<f64> {
        let outputs = (0..HEADS * KEYS).flat_map(|at| {
            let p = weights(row(&x[0], at), &x[1], at % KEYS + 1);
            (0..DIM)
                .map(|d| p.iter().enumerate().map(|(key, p)| p * x[2][key * DIM + d]).sum())
                .collect::<Vec<f64>>()
        });
        outputs.collect()
    }

    pub fn gradient(x: Values<'_>, c: &[f64]) -> Vec<Vec<f64>> {
        gradient_of(x, c, RIGHT)
    }

    pub fn gradient_of(x: Values<'_>, c: &[f64], wrong: Wrong) -> Vec<Vec<f64>> {
        let mut g: Vec<Vec<f64>> = x.iter().map(|x| vec![0.0; x.len()]).collect();
        let scale = if wrong.unscaled { 1.0 } else { SCALE };
        for at in 0..HEADS * KEYS {
            let seen = if wrong.unmasked { KEYS } else { at % KEYS + 1 };
            let p = weights(row(&x[0], at), &x[1], seen);
            let c = row(c, at);
            let along: Vec<f64> = (0..seen).map(|key| dot(c, row(&x[2], key))).collect();
            let sum = dot(&p, &along);
            for key in 0..seen {
                let score = scale * p[key] * (along[key] - sum);
                for d in 0..DIM {
                    g[0][at * DIM + d] += score * x[1][key * DIM + d];
                    if !(wrong.one_head && at >= KEYS) {
                        g[1][key * DIM + d] += score * x[0][at * DIM + d];
                        g[2][key * DIM + d] += p[key] * c[d];
                    }
                }
            }
        }
        g
    }
}

/// Functions of one sided slopes.
pub mod rectified {
    use mlx_parity::{gradcheck::Cotangent, ops::Generator};

    use crate::planted::Function;

    /// log x where x is positive, else nothing.
    pub const LOG: Function = Function {
        shapes: &[&[50]],
        output: &[50],
        value: |x| x[0].iter().map(|x| if *x > 0.0 { x.ln() } else { 0.0 }).collect(),
        gradient: |x, c| {
            let slope = |x: f64| if x > 0.0 { 1.0 / x } else { 0.0 };
            vec![x[0].iter().zip(c).map(|(x, c)| c * slope(*x)).collect()]
        },
        generator: Generator::Random,
        kinks: &[],
    };

    /// max(x, 0) of whole numbers, zero among them.
    pub const RELU: Function = Function {
        shapes: &[&[50]],
        output: &[50],
        value: |x| x[0].iter().map(|x| x.max(0.0)).collect(),
        gradient: |x, c| {
            let slope = |x: f64| f64::from(u8::from(x > 0.0));
            vec![x[0].iter().zip(c).map(|(x, c)| c * slope(*x)).collect()]
        },
        generator: Generator::Integers,
        kinks: &[Cotangent::Ones, Cotangent::Ramp],
    };
}

/// Rows of numbers.
pub mod rows {
    pub fn softmax(x: &[f64]) -> Vec<f64> {
        let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = x.iter().map(|x| (x - top).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|p| p / sum).collect()
    }

    pub fn transposed(x: &[f64], rows: usize, columns: usize) -> Vec<f64> {
        (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
    }
}
