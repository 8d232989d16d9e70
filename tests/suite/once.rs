//! One effect per key (G1), per consumer and sender (C3, C4), for any key (G5, D11), and none without one (G6, C5).

use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Claimed, Disposition, Error, Key, Outcome, commit};

use crate::handlers::{self, Message, Step};
use crate::harness::World;

#[tokio::test]
async fn the_first_delivery_works_and_every_other_is_a_duplicate() {
    let world = World::new().await;
    assert_eq!(handlers::record(&world.pool, "evt_001").await.unwrap(), Outcome::Processed(()));
    for _ in 0..3 {
        let Outcome::Duplicate(duplicate) = handlers::record(&world.pool, "evt_001").await.unwrap() else {
            panic!("a redelivery is a duplicate")
        };
        assert_eq!((duplicate.consumer(), duplicate.sender(), duplicate.key()), ("tests.record", "", "evt_001"));
    }
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn the_claim_is_handed_to_a_body_that_asks_for_it() {
    let world = World::new().await;
    let [consumer, sender, key, id] = handlers::identify(&world.pool, "evt 1").await.unwrap().value().unwrap();
    assert_eq!((&*consumer, &*sender, &*key, id.len()), ("tests.identify", "", "evt%201", 36));
}

#[tokio::test]
async fn two_consumers_do_not_share_an_id() {
    let world = World::new().await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    assert!(handlers::record_elsewhere(&world.pool, "1").await.unwrap().is_processed());
    assert_eq!(world.effects_of("1").await, 2);
}

#[tokio::test]
async fn two_senders_do_not_share_an_id() {
    let world = World::new().await;
    for (sender, processed) in [("stripe", true), ("github", true), ("stripe", false), ("Stripe", true)] {
        let outcome = handlers::record_by_sender(&world.pool, &Message { sender, id: "1" }).await.unwrap();
        assert_eq!(outcome.is_processed(), processed, "{sender}");
    }
    assert_eq!(world.effects_of("1").await, 3);
}

#[tokio::test]
async fn a_missing_key_runs_nothing_and_leaves_nothing() {
    let world = World::new().await;
    for (tenant, id) in [("t", None), ("t", Some("")), ("t", Some(" \t")), ("", Some("1")), ("\u{2003}", Some("1"))] {
        let error = handlers::record_composite(&world.pool, tenant, id).await.unwrap_err();
        assert!(matches!(error, Error::MissingKey { .. }), "{error:?}");
        assert_eq!((error.disposition(), error.http_status()), (Disposition::DeadLetter, 400));
    }
    let error = handlers::record(&world.pool, "").await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::MissingKey { .. })));
    let error = handlers::record_by_sender(&world.pool, &Message { sender: " ", id: "1" }).await.unwrap_err();
    assert!(matches!(Error::find(&error), Some(Error::MissingKey { .. })));
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
}

#[tokio::test]
async fn a_missing_key_runs_without_a_claim_where_the_handler_says_so() {
    let world = World::new().await;
    for _ in 0..2 {
        assert!(handlers::record_anyway(&world.pool, None).await.unwrap().is_processed());
    }
    assert!(handlers::record_anyway(&world.pool, Some("1")).await.unwrap().is_processed());
    assert!(handlers::record_anyway(&world.pool, Some("1")).await.unwrap().is_duplicate());
    assert_eq!((world.effects_of("none").await, world.effects_of("1").await, world.claims().await), (2, 1, 1));
}

/// Keys that a collation, a padding rule, a normalisation or a truncation would merge.
fn awkward_keys() -> Vec<String> {
    let long = "k".repeat(4_000);
    let mut keys: Vec<String> = [
        "k",
        "K",
        "k\0",
        "k\0\0",
        "k%",
        "k%20",
        "k%2520",
        "k\u{200b}",
        "\u{feff}k",
        "é",
        "e\u{301}",
        "É",
        "e",
        "ß",
        "ss",
        "SS",
        "ı",
        "i",
        "I",
        "İ",
        "ﬁ",
        "fi",
        "٣",
        "3",
        "³",
        "k'",
        "k\"",
        "k`",
        "k\\",
        "k;--",
        "%sha256:00",
        "😀",
        "😁",
        "\u{10ffff}",
    ]
    .map(String::from)
    .into();
    keys.extend(["k\u{a0}k", "k k", "k\tk", "k\nk", "kk"].map(String::from));
    keys.extend([long.clone(), format!("{long}k"), format!("{long}K"), long.replacen('k', "é", 1)]);
    keys.extend(["😀".repeat(63), "😀".repeat(64), "é".repeat(42), "é".repeat(43), "a".repeat(255), "a".repeat(256)]);
    keys
}

#[tokio::test]
async fn different_keys_never_collide() {
    let world = World::new().await;
    let keys = awkward_keys();
    for key in &keys {
        assert!(handlers::count(&world.pool, key).await.unwrap().is_processed(), "{key:?} was taken for another key");
    }
    for key in &keys {
        assert!(handlers::count(&world.pool, key).await.unwrap().is_duplicate(), "{key:?} was not recognised");
    }
    let expected = i64::try_from(keys.len()).unwrap();
    assert_eq!((world.effects().await, world.claims().await), (expected, expected));
}

#[tokio::test]
async fn random_keys_of_four_kilobytes_all_work() {
    let world = World::new().await;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64; // xorshift: the same keys on every run
    for _ in 0..20 {
        let key: String = std::iter::from_fn(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Some(char::from_u32(u32::try_from(state % 0x11_0000).unwrap()).unwrap_or('\0'))
        })
        .take(1_500)
        .collect();
        assert!(handlers::count(&world.pool, &key).await.unwrap().is_processed());
        assert!(handlers::count(&world.pool, &key).await.unwrap().is_duplicate());
    }
}

#[tokio::test]
async fn a_failed_run_leaves_neither_claim_nor_effect_and_the_redelivery_runs() {
    let world = World::with_connections(1).await;
    for _ in 0..3 {
        let error = handlers::scripted(&world.pool, "1", &[Step::Effect, Step::Fail]).await.unwrap_err();
        assert!(matches!(error, Error::Database(sqlx::Error::RowNotFound)), "the body's own error: {error:?}");
        assert_eq!((world.effects().await, world.claims().await), (0, 0));
    }
    assert!(handlers::scripted(&world.pool, "1", &[Step::Effect]).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_claim_expires_after_the_retention_by_the_databases_clock() {
    let world = World::new().await;
    let store = ClaimStore::new(world.pool.clone());
    let before = SystemTime::now() - Duration::from_millis(50); // the databases keep fewer digits
    assert!(handlers::record_for_three_seconds(&store, "1").await.unwrap().is_processed());
    let expires = store.find("tests.record_for_three_seconds", "", "1").await.unwrap().expect("the claim is there");
    let kept = expires.duration_since(before).unwrap();
    // The database runs on this machine, so its clock is ours.
    assert!((3.0..4.5).contains(&kept.as_secs_f64()), "{kept:?}");
}

#[tokio::test]
async fn a_forgotten_claim_lets_the_next_delivery_run() {
    let world = World::new().await;
    let store = ClaimStore::new(world.pool.clone());
    let message = Message { sender: "st ripe", id: "a/b c" };
    assert!(handlers::record_by_sender(&store, &message).await.unwrap().is_processed());
    let Outcome::Duplicate(duplicate) = handlers::record_by_sender(&store, &message).await.unwrap() else {
        panic!("a redelivery is a duplicate")
    };
    let (consumer, sender, key) = (duplicate.consumer(), duplicate.sender(), duplicate.key());
    assert!(store.find(consumer, sender, key).await.unwrap().is_some());
    assert!(!store.forget(consumer, "", key).await.unwrap(), "another sender's");
    assert!(!store.forget(consumer, sender, "a").await.unwrap(), "another key");
    assert!(store.forget(consumer, sender, key).await.unwrap());
    assert!(!store.forget(consumer, sender, key).await.unwrap(), "it is gone");
    assert!(store.find(consumer, sender, key).await.unwrap().is_none());
    assert!(handlers::record_by_sender(&store, &message).await.unwrap().is_processed());
}

#[tokio::test]
async fn the_store_claims_without_the_macro_and_shares_its_identities() {
    let world = World::new().await;
    let store = ClaimStore::new(world.pool.clone());
    let key = Key::new("evt_001").unwrap();
    for expected in [true, false] {
        let mut tx = world.pool.begin().await.unwrap();
        let claimed = store.claim(&mut tx, "tests.record", &key).await.unwrap();
        assert_eq!(matches!(claimed, Claimed::New(_)), expected);
        commit(tx).await.unwrap();
    }
    assert!(handlers::record(&world.pool, "evt_001").await.unwrap().is_duplicate());

    let mut tx = world.pool.begin().await.unwrap();
    for bad in ["", "a b", "ä", &"c".repeat(129)] {
        assert!(matches!(store.claim(&mut tx, bad, &key).await, Err(Error::Configuration(_))), "{bad}");
    }
}
