use super::{Step, Template};

fn parse(source: &str) -> Template {
    Template::parse(source).unwrap_or_else(|problems| panic!("{source}: {problems:?}"))
}

fn problems(source: &str) -> Vec<String> {
    Template::parse(source).expect_err(source)
}

#[test]
fn parts_and_literals_alternate() {
    let template = parse("{event.id}");
    assert_eq!(template.literals, ["", ""]);
    assert_eq!(template.parts[0].root, "event");
    assert_eq!(template.parts[0].steps, [Step::Field("id".into())]);

    let template = parse("order-{order.id}:v{order.0.version()}/end");
    assert_eq!(template.literals, ["order-", ":v", "/end"]);
    assert_eq!(template.parts[1].steps, [Step::Index(0), Step::Method("version".into())]);
    assert_eq!(template.parts[1].text, "order.0.version()");
    assert_eq!(template.parts[1].path(), ".0.version()");
}

#[test]
fn text_without_parts_is_one_literal() {
    let template = parse("stripe");
    assert_eq!((template.literals, template.parts.len()), (vec!["stripe".to_owned()], 0));
    assert_eq!(parse(""), Template::default());
}

#[test]
fn doubled_braces_are_text() {
    let template = parse("{{{event.id}}}");
    assert_eq!(template.literals, ["{", "}"]);
    assert_eq!(parse("{{}}").literals, ["{}"]);
    assert_eq!(parse("{a}}}{b}").literals, ["", "}", ""]);
}

#[test]
fn a_root_alone_is_a_path() {
    assert!(parse("{id}").parts[0].steps.is_empty());
    assert_eq!(parse("{self.tenant}").parts[0].root, "self");
}

#[test]
fn raw_identifiers_lose_their_mark() {
    for source in ["{event.type}", "{event.r#type}"] {
        assert_eq!(parse(source).parts[0].steps, [Step::Field("type".into())]);
    }
    assert_eq!(parse("{r#type.id}").parts[0].root, "type");
    assert_eq!(parse("{größe.id}").parts[0].root, "größe");
}

#[test]
fn braces_must_match() {
    assert!(problems("{event.id")[0].contains("is not closed: write `{event.id}`"));
    assert!(problems("{")[0].contains("is not closed"));
    assert!(problems("{a{b}")[0].contains("`{a` is not closed"));
    assert!(problems("event.id}")[0].contains("`}` closes nothing"));
    assert!(problems("{}")[0].contains("names nothing"));
    assert!(problems("{ }")[0].contains("names nothing"));
}

#[test]
fn a_part_is_a_path_only() {
    assert!(problems("{ event.id }")[0].contains("write `{event.id}`"));
    assert!(problems("{event.id:?}")[0].contains("`:?` is a format spec"));
    assert!(problems("{:?}")[0].contains("write `{event.id}`"));
    assert!(problems("{Uuid::new_v4()}")[0].contains("another value at each redelivery"));
    let expressions = [
        "{0}",
        "{f(x)}",
        "{a + b}",
        "{a.b(c)}",
        "{a[0]}",
        "{a?}",
        "{&a}",
        "{a.}",
        "{.a}",
        "{a..b}",
        "{a.01}",
        "{1a}",
        "{a.b::<C>()}",
        "{a.self}",
        "{_}",
        "{super.a}",
        "{a.99999999999}",
        "{a()}",
        "{a.b()()}",
        "{a.½}",
        "{\"a\"}",
    ];
    for source in expressions {
        assert!(problems(source)[0].contains("is an expression"), "{source}: {:?}", problems(source));
    }
}

#[test]
fn literal_text_is_visible_ascii_without_the_percent_sign() {
    assert!(problems("a b{x}")[0].contains("a space in the text of `a b{x}` cannot be stored"));
    assert!(problems("50%{x}")[0].contains("marks encoded bytes"));
    assert!(problems("é{x}")[0].contains("'é' in the text"));
    assert!(problems("\u{7f}{x}")[0].contains("cannot be stored"));
    assert!(problems("\n{x}")[0].contains("'\\n' in the text"));
}

#[test]
fn separators_start_with_punctuation() {
    assert!(problems("{a}{b}")[0].contains("nothing separates `{a}` from `{b}`"));
    assert!(problems("{a}x:{b}")[0].contains("write") || problems("{a}x:{b}")[0].contains("`{a}:x:{b}`"));
    for separator in "!\"#$&'()*+,-./:;<=>?@[\\]^_`|~".chars() {
        parse(&format!("{{a}}{separator}{{b}}"));
    }
    // Before the first part and after the last there is nothing to tell apart.
    parse("v1{a}:{b}end");
}

#[test]
fn every_problem_is_reported_at_once() {
    assert_eq!(problems("é% {x:?} {} {y").len(), 5);
}
