//! Work on several cores whose result does not depend on how many there are.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// Generated code nests deeply.
const STACK_BYTES: usize = 64 << 20;

/// The results of `f` for each item, in order. A panic of `f` goes on here.
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = available_parallelism().map_or(1, NonZero::get).min(items.len());
    if workers <= 1 {
        return items.iter().map(f).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, f(item)));
        }
    };
    let mut results: Vec<(usize, R)> = scope(|scope| {
        let spawn = || Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        // Where the system gives no thread, this one does the work.
        let threads: Vec<_> = (0..workers).map_while(|_| spawn().ok()).collect();
        let mut results = if threads.is_empty() { work() } else { Vec::new() };
        for thread in threads {
            results.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        results
    });
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        for count in [0, 1, 2, 100] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, |item| item * item), items.iter().map(|item| item * item).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "seven")]
    fn panics_go_on() {
        map(&(0..100).collect::<Vec<usize>>(), |&item| assert!(item != 7, "seven"));
    }
}
