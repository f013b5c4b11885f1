//! Compares samples that are there (`--load-baseline`): the benchmarks are the lines of standard input, and none runs.
use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    for id in std::io::stdin().lines() {
        criterion.bench_function(&id.unwrap(), |bencher| bencher.iter(|| ()));
    }
}
