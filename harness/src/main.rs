//! Placeholder
fn main(){}
