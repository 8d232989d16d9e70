//! What identifies a message: templates and fields whose roots are parameters of the handler.

use proc_macro2::{Ident, Span};
use syn::{LitStr, Pat};

use crate::errors::Errors;
use crate::expand;
use crate::options::{Name, Options};
use crate::signature::{Parameter, Role, Signature, plain_name};
use crate::suggest::nearest;
use crate::template::{Part, Template};
use crate::types;

/// A template whose parts are known to belong to parameters.
#[derive(Default)]
pub(crate) struct Identity {
    pub(crate) template: Template,
    /// For each part of the template, where it starts.
    pub(crate) roots: Vec<Root>,
}

/// The names that a template may start with.
pub(crate) struct Scope<'a> {
    pub(crate) signature: &'a Signature,
    /// Of a batch, what one item is called.
    pub(crate) each: Option<&'a Each>,
}

/// A batch, and the name of one item of it.
pub(crate) struct Each {
    /// As the templates call an item.
    pub(crate) item: String,
    /// Which parameter the batch is.
    pub(crate) parameter: usize,
    /// The batch in the signature.
    pub(crate) outer: Ident,
}

/// The parameter, or the name in a parameter's pattern, that a part starts with.
pub(crate) struct Root {
    /// Resolves as the parameter does, and is located at the template.
    pub(crate) ident: Ident,
    /// The parameter, `None` for `self`.
    pub(crate) parameter: Option<usize>,
    /// Does it start with an item of that parameter, which is a batch?
    pub(crate) of_item: bool,
}

/// A field whose value is taken as it is.
pub(crate) struct Field {
    pub(crate) part: Part,
    pub(crate) root: Root,
}

/// A key there must be, and one that differs from message to message.
pub(crate) fn check_key(options: &Options, key: Option<&Identity>, scope: &Scope<'_>, errors: &mut Errors) {
    if !options.mentions(Name::Key) && !options.mentions(Name::Sequence) {
        let example = example_part(scope);
        errors.at(
            Span::call_site(),
            format_args!(
                "there is no `key`: write which fields of the message identify it, as in `#[idempotent(key = \
                 \"{example}\")]`"
            ),
        );
    }
    if let Some((key, text)) = key.zip(options.text(Name::Key)) {
        check_parts("key", "all messages would have one key", key, text, scope, errors);
        if let Some(each) = scope.each.filter(|_| !key.roots.is_empty() && key.roots.iter().all(|root| !root.of_item)) {
            errors.on(
                text,
                format_args!(
                    "`{key}` names nothing of `{item}`, so that all items of a batch would have one key: write `key = \
                     \"{key}:{example}\"`",
                    key = text.value(),
                    item = each.item,
                    example = example_part(scope),
                ),
            );
        }
    }
}

/// Without a part in braces, `consequence`.
pub(crate) fn check_parts(
    option: &str,
    consequence: &str,
    identity: &Identity,
    text: &LitStr,
    scope: &Scope<'_>,
    errors: &mut Errors,
) {
    if !identity.template.parts.is_empty() {
        return;
    }
    let value = text.value();
    let advice = match Template::parse(&format!("{{{value}}}")) {
        Ok(path) if path.parts.first().is_some_and(|part| find(&part.root, scope).is_some()) => {
            format!("{{{value}}}")
        }
        _ => example_part(scope),
    };
    let shown = if value.is_empty() { format!("an empty {option}") } else { format!("`{value}`") };
    errors.on(
        text,
        format_args!("{shown} has no part in braces, so that {consequence}: write `{option} = \"{advice}\"`"),
    );
}

/// `{event.id}` with the name of a parameter that is there.
fn example_part(scope: &Scope<'_>) -> String {
    format!("{{{}}}", example_id(scope))
}

/// `event.id`, or `id` where that is the id.
fn example_id(scope: &Scope<'_>) -> String {
    let (root, whole) = roots(scope).next().unwrap_or_else(event);
    if whole { root } else { format!("{root}.id") }
}

/// `event.number`, or the parameter that is one: `version` for `version + 1`.
fn example_field(option: &str, written: &str, scope: &Scope<'_>) -> String {
    let mut words = written.split(|char: char| !char.is_alphanumeric() && char != '_').chain([option]);
    if let Some(whole) = words.find_map(|word| roots(scope).find(|(root, whole)| *whole && root == word)) {
        return whole.0;
    }
    let (root, _) = roots(scope).find(|(_, whole)| !whole).unwrap_or_else(event);
    format!("{root}.{option}")
}

fn event() -> (String, bool) {
    ("event".to_owned(), false)
}

/// What a part may start with, and whether it is a text or a number, and has no fields.
fn roots(scope: &Scope<'_>) -> impl Iterator<Item = (String, bool)> {
    let Scope { signature, each } = scope;
    let item = each.map(|each| {
        let ty = types::items(&signature.parameters[each.parameter].ty);
        (each.item.clone(), ty.is_some_and(types::is_text_or_number))
    });
    // Of a batch, items alone tell messages apart.
    let parameters = signature.with_role(Role::Plain).filter(|_| each.is_none()).flat_map(|parameter| {
        let whole = matches!(parameter.pattern, Pat::Ident(_)) && types::is_text_or_number(&parameter.ty);
        parameter.bindings.iter().map(move |binding| (binding.inner.to_string(), whole))
    });
    item.into_iter().chain(parameters.filter(|(name, _)| !name.starts_with('_')))
}

impl Identity {
    pub(crate) fn read(text: &LitStr, scope: &Scope<'_>, errors: &mut Errors) -> Option<Self> {
        let (template, problems) = Template::read(&text.value());
        for problem in &problems {
            errors.on(text, problem);
        }
        let read = |part| Root::read(part, Notation::Braces, text, scope, errors);
        let roots: Vec<_> = template.parts.iter().map(read).collect();
        let roots: Option<Vec<_>> = roots.into_iter().collect();
        Some(Self { template, roots: roots.filter(|_| problems.is_empty())? })
    }

    /// The parts with their roots.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Part, &Root)> {
        self.template.parts.iter().zip(&self.roots)
    }
}

impl Field {
    pub(crate) fn read(option: &str, text: &LitStr, scope: &Scope<'_>, errors: &mut Errors) -> Option<Self> {
        let value = text.value();
        let path = value.strip_prefix('{').and_then(|path| path.strip_suffix('}'));
        if let Some(path) = path {
            errors.on(text, format_args!("`{option}` is a field, not a template: write `{option} = \"{path}\"`"));
            return None;
        }
        let Ok(part) = Part::parse(&value) else {
            let example = example_field(option, &value, scope);
            let message = if value.contains("now") {
                format!(
                    "`{value}` is the time of this delivery, another one at each redelivery: write the field of the message that \
                     says when it came into being, a `SystemTime`, a `DateTime`, `UnixSeconds` or `UnixMillis`, as in \
                     `{option} = \"{example}\"`"
                )
            } else {
                format!("`{value}` is no field: write a parameter and its fields, as in `{option} = \"{example}\"`")
            };
            errors.on(text, message);
            return None;
        };
        let root = Root::read(&part, Notation::Bare, text, scope, errors)?;
        Some(Self { part, root })
    }
}

/// How an option writes a field.
#[derive(Clone, Copy)]
enum Notation {
    Braces,
    Bare,
}

impl Notation {
    fn write(self, path: &str) -> String {
        match self {
            Self::Braces => format!("{{{path}}}"),
            Self::Bare => path.to_owned(),
        }
    }
}

impl Root {
    fn read(part: &Part, notation: Notation, text: &LitStr, scope: &Scope<'_>, errors: &mut Errors) -> Option<Self> {
        let Part { text: path, root, .. } = part;
        let written = notation.write(path);
        let example = notation.write(&example_id(scope));
        let Some(found) = find(root, scope) else {
            let names = names(scope);
            let with_root = |name: &str| notation.write(&format!("{name}{}", part.path()));
            let message = match (nearest(root, names.iter().map(String::as_str)), names.as_slice()) {
                _ if root == "self" => {
                    format!("`{written}` means `self`, which this function does not have: write `{example}`")
                }
                (Some(name), _) => format!("there is no parameter `{root}`: write `{}`", with_root(name)),
                (None, [name]) => format!("there is no parameter `{root}`: write `{}`", with_root(name)),
                (None, []) => format!("there is no parameter `{root}`: add one with the message"),
                (None, names) => format!("there is no parameter `{root}`: write one of `{}`", names.join("`, `")),
            };
            errors.on(text, message);
            return None;
        };
        let refused = match found.role {
            Role::Plain => None,
            Role::Transaction => Some("the transaction"),
            Role::Claim => Some("the claim"),
        };
        if let Some(refused) = refused {
            errors.on(
                text,
                format_args!(
                    "`{written}` starts with {refused}, which is no part of the message: write a field of the message, \
                     like `{example}`"
                ),
            );
            return None;
        }
        let Found { mut ident, parameter, of_item, .. } = found;
        if let Some(each) = scope.each.filter(|each| parameter == Some(each.parameter) && !of_item) {
            let item = notation.write(&format!("{}{}", each.item, part.path()));
            errors.on(text, format_args!("`{written}` starts with the whole batch: write `{item}`"));
            return None;
        }
        ident.set_span(text.span().resolved_at(ident.span()));
        Some(Self { ident, parameter, of_item })
    }
}

struct Found {
    ident: Ident,
    role: Role,
    parameter: Option<usize>,
    of_item: bool,
}

/// What a name stands for.
fn find(name: &str, scope: &Scope<'_>) -> Option<Found> {
    let Scope { signature, each } = scope;
    if name == "self" {
        let ident = signature.receiver()?.into();
        return Some(Found { ident, role: Role::Plain, parameter: None, of_item: false });
    }
    if let Some(each) = each.filter(|each| each.item == name) {
        let (ident, parameter) = (each.ident(), Some(each.parameter));
        return Some(Found { ident, role: Role::Plain, parameter, of_item: true });
    }
    signature.parameters.iter().enumerate().find_map(|(index, parameter)| {
        let binding = parameter.bindings.iter().find(|binding| plain_name(&binding.inner) == name)?;
        let (ident, role, parameter) = (binding.outer.clone(), parameter.role, Some(index));
        Some(Found { ident, role, parameter, of_item: false })
    })
}

/// Every name that a part may start with.
fn names(scope: &Scope<'_>) -> Vec<String> {
    let item = scope.each.map(|each| each.item.clone());
    let parameters = scope.signature.with_role(Role::Plain).flat_map(|parameter| &parameter.bindings);
    let receiver = scope.signature.receiver().map(|_| "self".to_owned());
    item.into_iter().chain(parameters.map(|binding| plain_name(&binding.inner))).chain(receiver).collect()
}

/// The batch that was meant: a parameter with nearly this name, else one that is a `Vec`.
fn likely_batch(meant: &str, scope: &Scope<'_>) -> String {
    let plain = || scope.signature.with_role(Role::Plain);
    let name = |parameter: &Parameter| parameter.bindings.first().map(|binding| plain_name(&binding.inner));
    let names: Vec<String> = plain().filter_map(name).collect();
    let near = nearest(meant, names.iter().map(String::as_str)).map(str::to_owned);
    let vec = || plain().filter(|parameter| types::items(&parameter.ty).is_some()).find_map(name);
    near.or_else(vec).or_else(|| names.first().cloned()).unwrap_or_else(|| "events".to_owned())
}

/// What to call one item of a batch.
fn item_of(batch: &str, scope: &Scope<'_>) -> String {
    let singular = batch.strip_suffix('s').filter(|name| !name.is_empty()).unwrap_or("item");
    let candidates = [singular, "item", "one"];
    candidates.into_iter().find(|name| find(name, scope).is_none()).unwrap_or(singular).to_owned()
}

impl Each {
    /// `event in events`
    pub(crate) fn read(text: &LitStr, signature: &Signature, errors: &mut Errors) -> Option<Self> {
        let value = text.value();
        let name = |text: &str| match Part::parse(text.trim()) {
            Ok(part) if part.steps.is_empty() && part.root != "self" => Some(part.root),
            _ => None,
        };
        let loop_names = value.split_once(" in ").and_then(|(item, batch)| Some((name(item)?, name(batch)?)));
        let Some((item, batch)) = loop_names else {
            let example = Self::example(&value, signature);
            errors.on(
                text,
                format_args!("`{value}` does not name an item and its batch, a parameter: write `{example}`"),
            );
            return None;
        };
        let scope = Scope { signature, each: None };
        let Some(Found { ident, role: Role::Plain, parameter: Some(parameter), .. }) = find(&batch, &scope) else {
            let near = likely_batch(&batch, &scope);
            let item = if item == near { item_of(&near, &scope) } else { item };
            errors.on(text, format_args!("there is no batch `{batch}`: write `each = \"{item} in {near}\"`"));
            return None;
        };
        if item == batch || find(&item, &scope).is_some() {
            let what = if item == batch { "the whole batch" } else { "the name of a parameter" };
            let free = item_of(&batch, &scope);
            errors.on(
                text,
                format_args!(
                    "`{item}` is {what}: give the item a name of its own, as in `each = \"{free} in {batch}\"`"
                ),
            );
            return None;
        }
        let Parameter { ty, pattern, .. } = &signature.parameters[parameter];
        if types::items(ty).is_none() || !matches!(pattern, Pat::Ident(_)) {
            let advice = types::suggested_items(ty);
            errors.on(
                ty,
                format_args!(
                    "`each` takes a `Vec`, of which the body gets the fresh items alone: write `{batch}: Vec<{advice}>`"
                ),
            );
            return None;
        }
        Some(Self { item, parameter, outer: ident })
    }

    /// A correct use with the parameters that are there.
    pub(crate) fn example(meant: &str, signature: &Signature) -> String {
        let scope = Scope { signature, each: None };
        let batch = likely_batch(meant, &scope);
        format!("each = \"{} in {batch}\"", item_of(&batch, &scope))
    }

    /// Invisible to the user's code.
    pub(crate) fn ident(&self) -> Ident {
        expand::identifier(&self.item, Span::mixed_site())
    }
}
