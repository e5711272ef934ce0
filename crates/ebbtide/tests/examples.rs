//! The examples run, and their assertions hold.

#[path = "../examples/feature_cache.rs"]
mod feature_cache;
#[path = "../examples/look_aside.rs"]
mod look_aside;
#[path = "../examples/negative_results.rs"]
mod negative_results;
#[path = "../examples/rate_limiter.rs"]
mod rate_limiter;

#[test]
fn the_feature_cache_runs() {
    feature_cache::main().unwrap();
}

#[test]
fn the_look_aside_cache_runs() {
    look_aside::main().unwrap();
}

#[test]
fn the_rate_limiter_runs() {
    rate_limiter::main().unwrap();
}

#[test]
fn the_negative_results_run() {
    negative_results::main().unwrap();
}
