//! Stale and won flags: one of several clients wins, and no flag outlives its value.

use super::{Client, model, store};
use crate::{Extension, Mode, Stored};
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"k";

/// A model of two threads on a key that was set to 1; both must leave a sound store.
fn against(
    prepare: impl Fn(&Client<'_>) + Send + Sync + 'static,
    theirs: impl Fn(&Client<'_>) -> u64 + Send + Sync + Clone + 'static,
    ours: impl Fn(&Client<'_>) -> u64 + Send + Sync + 'static,
    judge: impl Fn(&Client<'_>, u64, u64) + Send + Sync + 'static,
) {
    model(2, move || {
        let store = store(5, 0);
        let client = Client::new(&store);
        prepare(&client);
        let other = {
            let (store, theirs) = (Arc::clone(&store), theirs.clone());
            thread::spawn(move || theirs(&Client::new(&store)))
        };
        let mine = ours(&client);
        judge(&client, other.join().unwrap(), mine);
        client.verify();
    });
}

fn set_stale(client: &Client<'_>) {
    client.set(KEY, 1);
    assert!(client.mark_stale(KEY));
}

fn win(client: &Client<'_>) -> u64 {
    client.win(KEY).into()
}

#[test]
fn one_of_two_wins_a_stale_item() {
    against(set_stale, win, win, |client, theirs, mine| {
        assert_eq!(theirs + mine, 1);
        assert_eq!(client.extension(KEY), Some(Extension { stale: true, won: true, copied: false, token: None }));
    });
}

#[test]
fn one_of_two_makes_an_absent_item() {
    against(
        |_| (),
        win,
        win,
        |client, theirs, mine| {
            assert_eq!(theirs + mine, 1);
            assert_eq!(client.extension(KEY), Some(Extension { stale: false, won: true, copied: false, token: None }));
        },
    );
}

#[test]
fn no_flag_outlives_a_set() {
    let set = |client: &Client<'_>| {
        client.set(KEY, 2);
        0
    };
    against(set_stale, set, win, |client, _, _| {
        assert_eq!((client.get(KEY), client.extension(KEY)), (Some(2), Some(Extension::default())));
    });
}

/// Two stale flags in a row, or one after the win: the last flag allows a win.
#[test]
fn a_stale_flag_after_a_win_allows_another() {
    let mark = |client: &Client<'_>| u64::from(client.mark_stale(KEY));
    against(set_stale, mark, win, |client, marked, won| {
        assert_eq!((marked, won), (1, 1));
        let extension = client.extension(KEY).expect("it is there");
        assert_eq!(client.win(KEY), !extension.won, "{extension:?}");
    });
}

#[test]
fn a_win_loses_no_increment() {
    let count = |client: &Client<'_>| client.add_to(KEY, 3).expect("it is there");
    let prepare = |client: &Client<'_>| {
        client.set(KEY, 1);
        assert_eq!(client.add_to(KEY, 1), Some(2), "the item is numeric now");
        assert!(client.mark_stale(KEY));
    };
    against(prepare, count, win, |client, counted, won| {
        assert_eq!((counted, won, client.get(KEY)), (5, 1, Some(5)));
        assert_eq!(client.extension(KEY), Some(Extension { stale: true, won: true, copied: false, token: None }));
    });
}

/// A write with a token that another set overtakes is stale; before that set, it is overwritten.
#[test]
fn a_stale_write_hides_no_later_set() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        client.set(KEY, 1);
        let (_, token) = client.gets(KEY).expect("it was set");
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).set(KEY, 2))
        };
        assert_eq!(client.write(KEY, 3, Mode::CasOrStale(token)), Stored::Stored);
        other.join().unwrap();
        match client.get(KEY) {
            Some(2) => assert_eq!(client.extension(KEY), Some(Extension::default())),
            Some(3) => assert_eq!(
                client.extension(KEY),
                Some(Extension { stale: true, won: false, copied: false, token: None })
            ),
            value => panic!("{value:?}"),
        }
        client.verify();
    });
}
