//! The claim table: missing, old, made by many at once, and beside the application's own migrations (D15, D17).

use idempotent_runtime::{ClaimStore, Disposition, Error, catalog, migrate};
use sqlx::{AssertSqlSafe, Row as _};
use tokio::task::JoinSet;

use crate::handlers;
use crate::harness::{World, connect};

#[tokio::test]
async fn a_missing_table_names_the_function_that_makes_it() {
    let world = World::not_migrated(1).await;
    let error = Error::from(handlers::record(&world.pool, "1").await.unwrap_err());
    assert!(matches!(&error, Error::NotMigrated { table, .. } if table == "processed_messages"), "{error:?}");
    assert!(error.to_string().contains("idempotent_runtime::migrate(&pool).await?"), "{error}");
    assert_eq!((error.disposition(), error.http_status()), (Disposition::Retry, 500), "a deployment repairs it");
    let store = ClaimStore::new(world.pool.clone());
    assert!(matches!(store.find("c", "", "k").await, Err(Error::NotMigrated { .. })));
    assert!(matches!(store.forget("c", "", "k").await, Err(Error::NotMigrated { .. })));
}

#[tokio::test]
async fn an_older_table_is_not_taken_for_this_versions() {
    for old in [
        "CREATE TABLE processed_messages (id VARCHAR(100) NOT NULL PRIMARY KEY)",
        "CREATE TABLE processed_messages (consumer VARCHAR(100) NOT NULL, id VARCHAR(100) NOT NULL)",
    ] {
        let world = World::not_migrated(1).await;
        world.run(old).await;
        let error = Error::from(handlers::record(&world.pool, "1").await.unwrap_err());
        assert!(matches!(error, Error::NotMigrated { .. }), "{error:?}");
    }
}

/// Hand-written code has often given its table the very name that the library's has by default.
#[tokio::test]
async fn a_name_that_another_table_has_is_refused_and_nothing_is_made() {
    for old in [
        "CREATE TABLE processed_messages (id VARCHAR(100) NOT NULL PRIMARY KEY)",
        "CREATE TABLE processed_messages (consumer VARCHAR(100) NOT NULL, id VARCHAR(100) NOT NULL)",
        "CREATE VIEW processed_messages AS SELECT 1 AS id",
    ] {
        let world = World::not_migrated(1).await;
        world.run(old).await;
        for _ in 0..2 {
            let error = migrate(&world.pool).await.expect_err("the name is taken");
            let Error::Configuration(text) = &error else { panic!("{error:?}") };
            for part in ["processed_messages` that this library did not make", ".table(\"…\")", "`guide::adoption`"] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
        let elsewhere = ClaimStore::builder(world.pool.clone()).table("idempotent_messages").build().unwrap();
        elsewhere.migrate().await.expect("another name");
        // Once it is gone nothing remembers it.
        let kind = if old.contains("VIEW") { "VIEW" } else { "TABLE" };
        world.run(&format!("DROP {kind} processed_messages")).await;
        migrate(&world.pool).await.expect("the name is free");
        migrate(&world.pool).await.expect("once more changes nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_instances_migrate_at_once_beside_the_applications_own_migrations() {
    let world = World::not_migrated(1).await;
    world.run("CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL)").await;
    world.run("INSERT INTO _sqlx_migrations VALUES (1, 'the application''s own')").await;
    let mut instances = JoinSet::new();
    for _ in 0..8 {
        let pool = connect(&world.fresh, 1).await;
        instances.spawn(async move { migrate(&pool).await });
    }
    for migrated in instances.join_all().await {
        migrated.expect("every instance succeeds");
    }
    migrate(&world.pool).await.expect("once more changes nothing");
    assert_eq!(world.number("SELECT count(*) FROM _sqlx_migrations").await, 1);
    let applied = "SELECT count(*) - count(DISTINCT version) FROM processed_messages_migrations";
    assert_eq!(world.number(applied).await, 0);
    world.run("CREATE TABLE effects (id VARCHAR(100) NOT NULL)").await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
}

#[tokio::test]
async fn impossible_settings_are_refused_when_the_store_is_built() {
    let world = World::not_migrated(1).await;
    let builder = || ClaimStore::builder(world.pool.clone());
    for table in ["", "a b", "a.b.c", "a\"; DROP TABLE b; --", "ä"] {
        assert!(matches!(builder().table(table).build(), Err(Error::Configuration(_))), "{table}");
    }
    for seconds in [0, u64::MAX] {
        let retention = std::time::Duration::from_secs(seconds);
        assert!(matches!(builder().retention(retention).build(), Err(Error::Configuration(_))), "{seconds}");
    }
}

#[tokio::test]
async fn the_catalogue_knows_every_handler() {
    let catalog = catalog();
    catalog.check().expect("no two handlers share a name");
    let record = catalog.handlers().iter().find(|handler| handler.consumer() == "tests.record").expect("it is there");
    assert_eq!((record.key(), record.sender(), record.retention().as_secs()), ("{id}", "", 7 * 24 * 3_600));
    assert!(record.function().ends_with("handlers::record") && record.file().ends_with("handlers.rs"));
    assert!(!record.is_consumer_chosen());
    let table = catalog.to_markdown();
    assert!(table.contains("| `suite.record-elsewhere` | `` {id} `` |"), "{table}");
}

/// What somebody on call reads in the guide before writing SQL.
#[tokio::test]
async fn the_guide_names_every_column() {
    let guide = include_str!("../../idempotent-runtime/docs/sizing.md");
    let world = World::new().await;
    handlers::record(&world.pool, "1").await.unwrap();
    world.run(&format!("INSERT INTO processed_messages_positions VALUES ('c', '', 'e', 1, {})", crate::SOON)).await;
    for table in ["processed_messages", "processed_messages_positions"] {
        let select = format!("SELECT * FROM {table}");
        let row = sqlx::raw_sql(AssertSqlSafe(select)).fetch_one(&world.pool).await.expect("a row");
        let columns: Vec<_> = row.columns().iter().map(sqlx::Column::name).collect();
        let (_, section) = guide.split_once(&format!("| `{table}` |")).expect("its table");
        let lines = section.lines().skip(2).take_while(|line| line.starts_with('|'));
        // Of this database, with the lines of several columns taken apart.
        let documented: Vec<_> = lines
            .filter(|line| line.split('|').nth(crate::GUIDE_COLUMN).is_some_and(|of| of.trim() != "none"))
            .flat_map(|line| {
                line.split('|').nth(1).expect("names").split(',').map(|name| name.trim().trim_matches('`'))
            })
            .collect();
        assert_eq!(documented, columns, "{table}");
    }
}
