//! What an adoption makes of an old table: the same identities as the macro's, kept long enough.

use std::time::{Duration, SystemTime};

use idempotent_runtime::{Adopted, Adoption, ClaimStore, Error, idempotent};
use sqlx::{AssertSqlSafe, Executor as _};

use crate::handlers::{self, Message};
use crate::harness::{World, drop_after, numbers};
use crate::{Db, OLD_ID, Tx};

const HOUR: i64 = 3_600_000;

fn store(world: &World) -> ClaimStore<Db> {
    ClaimStore::new(world.pool.clone())
}

#[idempotent(key = "order-{order}/{version}", consumer = "suite.ship", retention = "2d")]
async fn ship(#[tx] tx: &mut Tx<'_>, order: &str, version: u32) -> sqlx::Result<()> {
    handlers::effect(tx, "shipped").await
}

#[idempotent(consumer = "suite.offsets-only", sequence(entity = "{partition}", number = "offset"))]
async fn apply(#[tx] tx: &mut Tx<'_>, partition: u32, offset: i64) -> sqlx::Result<()> {
    handlers::effect(tx, "applied").await
}

#[idempotent(key = "{tenant}", consumer = "suite.twice-named", missing = "reject")]
async fn optional(#[tx] tx: &mut Tx<'_>, tenant: Option<&str>) -> Result<(), Error> {
    Ok(handlers::effect(tx, tenant.unwrap_or_default()).await?)
}

#[tokio::test]
async fn every_id_has_the_form_that_the_macro_gives_it() {
    let world = World::new().await;
    world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL PRIMARY KEY)")).await;
    let ids = [
        "evt_001",
        "with space",
        "  around  ",
        "100%",
        "%25",
        "K\u{e4}se",
        "Ka\u{308}se",
        "\u{1f600}",
        "quote\"back\\slash'",
        "tab\tline\nend",
        "{braces}",
        "a:b/c-d_e",
        &"x".repeat(255),
        &"x".repeat(256),
        &"\u{e4}".repeat(300),
    ];
    for id in ids {
        let insert = format!("INSERT INTO old (id) VALUES ({})", crate::PARAMETER);
        sqlx::query(AssertSqlSafe(insert)).bind(id).execute(&world.pool).await.expect("a row");
    }
    let adopted = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await.unwrap();
    let count = u64::try_from(ids.len()).unwrap();
    assert_eq!((adopted.read, adopted.copied, adopted.present), (count, count, 0));
    for id in ids {
        assert!(handlers::count(&world.pool, id).await.unwrap().is_duplicate(), "{id:?}");
    }
    assert!(handlers::count(&world.pool, "evt_002").await.unwrap().is_processed());
    let again = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await.unwrap();
    assert_eq!((again.read, again.copied, again.present), (count, 0, count));
}

#[tokio::test]
async fn many_pages_are_read_to_the_last_row() {
    let world = World::new().await;
    world
        .run(&format!("CREATE TABLE old (consumer {} NOT NULL, id {OLD_ID} NOT NULL)", OLD_ID.replace("700", "50")))
        .await;
    for consumer in ["a", "b", "c"] {
        world.run(&format!("INSERT INTO old SELECT '{consumer}', CONCAT('evt-', number) FROM {}", numbers(777))).await;
    }
    let adoption = || {
        Adoption::of_table("old")
            .consumer_column("consumer")
            .renamed("a", "tests.record")
            .renamed("b", "suite.record-elsewhere")
            .left_out("c")
    };
    let adopted = store(&world).adopt(adoption()).await.unwrap();
    assert_eq!((adopted.read, adopted.copied, adopted.left_out), (3 * 777, 2 * 777, 777));
    assert_eq!(world.claims().await, 2 * 777);
    assert!(handlers::record(&world.pool, "evt-777").await.unwrap().is_duplicate());
    assert!(handlers::record_elsewhere(&world.pool, "evt-1").await.unwrap().is_duplicate());
    assert!(handlers::record_elsewhere(&world.pool, "evt-778").await.unwrap().is_processed());
}

#[tokio::test]
async fn templates_of_several_placeholders_are_filled_from_the_parts_of_an_id() {
    let world = World::new().await;
    world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL PRIMARY KEY)")).await;
    world.run("INSERT INTO old VALUES ('o-1 x-v3'), ('b/2-v4')").await;
    let split = |id: &str| id.rsplit_once("-v").map(|(order, version)| vec![order.to_owned(), version.to_owned()]);
    let adoption = Adoption::of_table("old").handler("suite.ship").split(split);
    assert_eq!(store(&world).adopt(adoption).await.unwrap().copied, 2);
    assert!(ship(&world.pool, "o-1 x", 3).await.unwrap().is_duplicate());
    assert!(ship(&world.pool, "b/2", 4).await.unwrap().is_duplicate());
    assert!(ship(&world.pool, "b/2", 3).await.unwrap().is_processed());

    // Those of the key first, then those of the sender.
    world.run("DELETE FROM old").await;
    world.run("INSERT INTO old VALUES ('stripe evt_1')").await;
    let split = |id: &str| id.split_once(' ').map(|(sender, id)| vec![id.to_owned(), sender.to_owned()]);
    let adoption = Adoption::of_table("old").handler("tests.record_by_sender").split(split);
    assert_eq!(store(&world).adopt(adoption).await.unwrap().copied, 1);
    let message = |sender, id| Message { sender, id };
    assert!(handlers::record_by_sender(&world.pool, &message("stripe", "evt_1")).await.unwrap().is_duplicate());
    assert!(handlers::record_by_sender(&world.pool, &message("evt_1", "stripe")).await.unwrap().is_processed());
}

#[tokio::test]
async fn ids_of_other_types_are_their_texts() {
    for (column, literal, id) in crate::OTHER_IDS {
        let world = World::new().await;
        world.run(&format!("CREATE TABLE old (id {column} NOT NULL PRIMARY KEY)")).await;
        world.run(&format!("INSERT INTO old VALUES ({literal})")).await;
        let adopted = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await.expect(column);
        assert_eq!((adopted.read, adopted.copied), (1, 1), "{column}");
        assert!(handlers::count(&world.pool, id).await.unwrap().is_duplicate(), "{column}");
    }
    for column in crate::NO_IDS {
        let world = World::new().await;
        world.run(&format!("CREATE TABLE old (id {column} NOT NULL)")).await;
        let refused = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await;
        assert!(matches!(refused, Err(Error::Configuration(_))), "{column}: {refused:?}");
    }
}

#[tokio::test]
async fn numbers_are_paged_as_numbers() {
    let world = World::new().await;
    world.run("CREATE TABLE old (id BIGINT NOT NULL PRIMARY KEY)").await;
    world.run(&format!("INSERT INTO old SELECT number * 7 FROM {}", numbers(1_700))).await;
    let adopted = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await.unwrap();
    assert_eq!((adopted.read, adopted.copied), (1_700, 1_700));
}

/// Two columns that are no text, and the view that makes an id of them.
#[tokio::test]
async fn ids_in_other_forms_are_adopted_from_a_view() {
    let world = World::new().await;
    world.run(&format!("CREATE TABLE old (bytes {} NOT NULL, number BIGINT NOT NULL)", crate::BYTES)).await;
    let bytes = crate::bytes("FF00C328");
    world.run(&format!("INSERT INTO old SELECT {bytes}, number FROM {}", numbers(1_200))).await;
    let refused = store(&world).adopt(Adoption::of_table("old").id_column("bytes").handler("tests.count")).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("adopt a view") || refused.contains("no type for an id"), "{refused}");
    let hex = crate::HEX.replace("{}", "bytes");
    world.run(&format!("CREATE VIEW old_ids AS SELECT CONCAT({hex}, '/', number) AS id FROM old")).await;
    let adopted = store(&world).adopt(Adoption::of_table("old_ids").handler("tests.count")).await.unwrap();
    assert_eq!((adopted.read, adopted.copied), (1_200, 1_200));
    assert!(handlers::count(&world.pool, "ff00c328/1200").await.unwrap().is_duplicate());
}

#[tokio::test]
async fn a_table_without_rows_is_adopted_as_nothing() {
    let world = World::new().await;
    world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL PRIMARY KEY)")).await;
    let adopted = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await.unwrap();
    assert_eq!((adopted, world.claims().await), (Adopted::default(), 0));
}

/// Three ids in each case that the column's collation takes for one, so that they stand on both sides of the end of a
/// page.
#[tokio::test]
async fn ids_that_the_old_tables_collation_takes_for_equal_are_all_adopted() {
    let world = World::new().await;
    if let Some(sql) = crate::CASELESS_COLLATION {
        world.run(sql).await;
    }
    for columns in ["", "consumer VARCHAR(50) NOT NULL, "] {
        world.run(&format!("CREATE TABLE old ({columns}id {} NOT NULL)", crate::CASELESS_ID)).await;
        let of = if columns.is_empty() { "" } else { "'tests.count', " };
        for prefix in ["evt", "EVT", "Evt"] {
            world.run(&format!("INSERT INTO old SELECT {of}CONCAT('{prefix}-', number) FROM {}", numbers(700))).await;
        }
        let old = Adoption::of_table("old");
        let old = if of.is_empty() { old.handler("tests.count") } else { old.consumer_column("consumer") };
        let adopted = store(&world).adopt(old).await.unwrap();
        assert_eq!((adopted.read, adopted.copied, adopted.present), (2_100, 2_100, 0), "{columns}");
        assert!(handlers::count(&world.pool, "EVT-700").await.unwrap().is_duplicate());
        assert!(handlers::count(&world.pool, "eVT-700").await.unwrap().is_processed(), "another key, as everywhere");
        world.run("DROP TABLE old").await;
        world.run("DELETE FROM processed_messages").await;
    }
}

#[tokio::test]
async fn of_rows_with_the_same_id_the_youngest_counts_on_whatever_page() {
    let world = World::new().await;
    let (column, moment) = crate::OLD_TIMES[0];
    world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL, at {column})")).await;
    // 499 ids come before, so that the page ends between the two.
    for (id, age, count) in [("a", 1, 499), ("b", 10, 1), ("b", 1, 1)] {
        let time = crate::old_time(-age * 24 * HOUR, moment);
        world.run(&format!("INSERT INTO old SELECT CONCAT('{id}-', number), {time} FROM {}", numbers(count))).await;
    }
    store(&world).adopt(Adoption::of_table("old").time_column("at").handler("tests.count")).await.unwrap();
    assert!(handlers::count(&world.pool, "b-1").await.unwrap().is_duplicate());
}

#[tokio::test]
async fn retention_counts_from_the_time_column_and_is_never_too_short() {
    for (column, moment) in crate::OLD_TIMES {
        let world = World::new().await;
        world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL PRIMARY KEY, at {column})")).await;
        let time = |millis| crate::old_time(millis, *moment);
        world.run(&format!("INSERT INTO old VALUES ('recent', {}), ('unknown', NULL)", time(-HOUR))).await;
        world.run(&format!("INSERT INTO old VALUES ('future', {})", time(5 * HOUR))).await;
        // The handler's retention is two days, and a time without a zone gets a day more.
        let slack = if *moment { 0 } else { 24 * HOUR };
        world.run(&format!("INSERT INTO old VALUES ('margin', {})", time(-48 * HOUR - slack - HOUR / 2))).await;
        world.run(&format!("INSERT INTO old VALUES ('ancient', {})", time(-48 * HOUR - slack - 2 * HOUR))).await;
        let adoption = Adoption::of_table("old").time_column("at").handler("suite.ship");
        let adoption = adoption.split(|id| Some(vec![id.to_owned(), "1".to_owned()]));
        let adopted = store(&world).adopt(adoption).await.unwrap();
        assert_eq!((adopted.read, adopted.copied, adopted.expired), (5, 4, 1), "{column}");
        for (id, hours) in [("recent", 47 * HOUR + slack), ("unknown", 48 * HOUR), ("future", 48 * HOUR + slack)] {
            let key = format!("order-{id}/1");
            let expires = store(&world).find("suite.ship", "", &key).await.unwrap().expect(id);
            let left = expires.duration_since(SystemTime::now()).unwrap().as_millis();
            let wanted = u128::try_from(hours).unwrap();
            assert!(left.abs_diff(wanted) < 60_000, "{column}: {id} expires in {left} ms instead of {wanted}");
        }
        let purged = store(&world).purge(idempotent_runtime::PurgeOptions::new()).await.unwrap();
        assert_eq!(purged.deleted, 0, "{column}: what is past its margin is not adopted");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_says_why() {
    let world = World::new().await;
    let quote = crate::QUOTE;
    let columns = format!("consumer {OLD_ID}, id {OLD_ID} NOT NULL, {quote}event-id{quote} {OLD_ID}");
    world.run(&format!("CREATE TABLE old ({columns})")).await;
    world.run("INSERT INTO old VALUES ('unknown', 'a', 'a')").await;
    ClaimStore::builder(world.pool.clone()).table("copied").build().unwrap().migrate().await.unwrap();
    let old = || Adoption::of_table("old");
    let mut wrong = Vec::new();
    for (adoption, says) in [
        (old(), "`handler` or `consumer_column`"),
        (old().handler("tests.record").consumer_column("consumer"), "in one way"),
        (old().handler("nobody"), "`nobody`"),
        (old().handler("suite.ship"), "2 placeholders"),
        (old().handler("tests.record").split(|_| None), "\"a\""),
        (old().consumer_column("consumer"), "`unknown`"),
        (old().consumer_column("consumers"), "no column `consumers`"),
        (old().handler("tests.record").id_column("event"), "no column `event`"),
        (old().handler("tests.record").time_column("at"), "no column `at`"),
        (Adoption::of_table("older").handler("tests.record"), "no table `older`"),
        (Adoption::of_table("old; DROP TABLE old").handler("tests.record"), "no table name"),
        (Adoption::of_table("old-table").handler("tests.record"), "adopt a view"),
        (old().handler("tests.record").id_column("id\" --"), "no column"),
        (old().handler("tests.record").id_column("event-id"), "adopt a view"),
        (old().handler("suite.offsets-only"), "makes no claims"),
        (old().consumer_column("consumer").renamed("unknown", "suite.offsets-only"), "makes no claims"),
        // Under any name that the database takes for it.
        (Adoption::of_table("processed_messages").id_column("key").consumer_column("consumer"), "of this store itself"),
        (Adoption::of_table("copied").id_column("key").consumer_column("consumer"), "claims of this library"),
    ] {
        let what = format!("{adoption:?}");
        match store(&world).adopt(adoption).await {
            Err(Error::Configuration(text)) if text.contains(says) => {}
            other => wrong.push(format!("{what}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(world.claims().await, 0);
    assert!(apply(&world.pool, 1, 1).await.unwrap().is_processed());
    let elsewhere = ClaimStore::builder(world.pool.clone()).table("elsewhere").build().unwrap();
    let missing = elsewhere.adopt(old().handler("tests.record")).await;
    assert!(matches!(missing, Err(Error::NotMigrated { .. })), "{missing:?}");
}

#[tokio::test]
async fn rows_without_an_id_are_counted_and_left() {
    let world = World::new().await;
    world.run(&format!("CREATE TABLE old (id {OLD_ID})")).await;
    world.run("INSERT INTO old VALUES (''), ('  '), (NULL), (NULL), ('a')").await;
    let adopted = store(&world).adopt(Adoption::of_table("old").handler("suite.twice-named")).await.unwrap();
    assert_eq!((adopted.read, adopted.copied, adopted.blank), (5, 1, 4));
    assert!(optional(&world.pool, Some("a")).await.unwrap().is_duplicate());

    world.run(&format!("CREATE TABLE older (consumer {OLD_ID}, id {OLD_ID})")).await;
    let of = "'suite.twice-named'";
    world.run(&format!("INSERT INTO older VALUES ({of}, 'b'), ({of}, NULL), (NULL, 'c'), (NULL, NULL)")).await;
    let adopted = store(&world).adopt(Adoption::of_table("older").consumer_column("consumer")).await.unwrap();
    assert_eq!((adopted.read, adopted.copied, adopted.blank), (4, 1, 3));
}

#[tokio::test]
async fn a_claim_that_is_there_stays_as_it_is() {
    let world = World::new().await;
    assert!(handlers::record_for_three_seconds(&world.pool, "a").await.unwrap().is_processed());
    let find = || async { store(&world).find("tests.record_for_three_seconds", "", "a").await.unwrap() };
    let before = find().await;
    world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL)")).await;
    world.run("INSERT INTO old VALUES ('a'), ('a'), ('b')").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let adoption = Adoption::of_table("old").handler("tests.record_for_three_seconds");
    let adopted = store(&world).adopt(adoption).await.unwrap();
    assert_eq!((adopted.copied, adopted.present), (1, 2));
    assert_eq!(find().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_adoption_leaves_nothing_open_and_is_finished_by_the_next() {
    let world = World::with_connections(1).await;
    world.run(&format!("CREATE TABLE old (id {OLD_ID} NOT NULL PRIMARY KEY)")).await;
    world.run(&format!("INSERT INTO old SELECT CONCAT('evt-', number) FROM {}", numbers(1_100))).await;
    for polls in 1..=60 {
        let adopting = store(&world);
        drop_after(polls, adopting.adopt(Adoption::of_table("old").handler("tests.count"))).await;
        let statement = format!("statement-{polls}");
        let insert = format!("INSERT INTO effects (id) VALUES ('{statement}')");
        world.pool.execute(AssertSqlSafe(insert)).await.expect("no error");
        assert_eq!(world.effects_of(&statement).await, 1, "after {polls} polls");
        assert!(handlers::record(&world.pool, &statement).await.unwrap().is_processed());
    }
    let adopted = store(&world).adopt(Adoption::of_table("old").handler("tests.count")).await.unwrap();
    assert_eq!(adopted.copied + adopted.present, 1_100);
    assert_eq!(world.number("SELECT count(*) FROM processed_messages WHERE consumer = 'tests.count'").await, 1_100);
}
