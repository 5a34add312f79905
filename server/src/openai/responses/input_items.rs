//! `GET /v1/responses/{id}/input_items`: the items to which a response answers.

use super::record::Record;
use crate::failure::{Answer, Failure};
use serde::Serialize;
use utoipa::ToSchema;
use wingbeat::low_level::template::{Message, Role};

/// The number of items on a page if the request sets no limit.
const PAGE: usize = 20;
/// The most items on a page.
const MAX_PAGE: usize = 100;

/// A page of input items.
#[derive(Serialize, ToSchema)]
pub struct InputItems {
    object: &'static str,
    data: Vec<InputItem>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// A message, a call or the result of a call.
#[derive(Serialize, ToSchema)]
pub struct InputItem {
    id: String,
    #[serde(flatten)]
    item: ItemKind,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ItemKind {
    Message { role: &'static str, status: &'static str, content: [ItemText; 1] },
    FunctionCall { call_id: String, name: String, arguments: String, status: &'static str },
    FunctionCallOutput { call_id: String, output: String, status: &'static str },
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ItemText {
    InputText { text: String },
    OutputText { text: String },
}

/// The page that a request asks for: `limit`, `order` and `after` in the query.
struct Page {
    limit: usize,
    is_oldest_first: bool,
    after: Option<String>,
}

impl Page {
    fn read(query: &str) -> Answer<Page> {
        let mut page = Page { limit: PAGE, is_oldest_first: false, after: None };
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (key.as_ref(), value.as_ref()) {
                ("limit", value) => {
                    let limit = value.parse().ok().filter(|n| (1..=MAX_PAGE).contains(n));
                    let expected = || {
                        format!(
                            "expected a whole number from 1 to {MAX_PAGE}, found {:?}",
                            wingbeat::low_level::front_end::short(value, 40)
                        )
                    };
                    page.limit = limit.ok_or_else(|| Failure::field("limit", expected()))?;
                }
                ("order", "asc") => page.is_oldest_first = true,
                ("order", "desc") => page.is_oldest_first = false,
                ("order", _) => return Err(Failure::field("order", "expected asc or desc")),
                ("after", id) => page.after = Some(id.into()),
                _ => {}
            }
        }
        Ok(page)
    }
}

/// Returns the page of a response's input that `query` asks for.
///
/// # Errors
/// 400 if the query has a wrong value.
pub fn list(id: &str, record: &Record, query: &str) -> Answer<InputItems> {
    let page = Page::read(query)?;
    let short_id = id.trim_start_matches(crate::states::OF_RESPONSES);
    let (mut items, mut n_calls) = (Vec::new(), [0, 0]);
    for (i, message) in record.input().iter().enumerate() {
        items.push(InputItem { id: format!("msg_{short_id}_{i}"), item: item(message, short_id, &mut n_calls) });
    }
    if !page.is_oldest_first {
        items.reverse();
    }
    let from = match &page.after {
        Some(after) => {
            items.iter().position(|item| item.id == *after).ok_or_else(|| Failure::field("after", "expected the id of an item"))? + 1
        }
        None => 0,
    };
    let has_more = items.len() > from + page.limit;
    let data: Vec<InputItem> = items.into_iter().skip(from).take(page.limit).collect();
    let (first_id, last_id) = (data.first().map(|item| item.id.clone()), data.last().map(|item| item.id.clone()));
    Ok(InputItems { object: "list", data, first_id, last_id, has_more })
}

/// Converts a message to an item. The engine's messages have no ids of calls, so the ids here are numbers. A result has the number of its call, because
/// results are in the order of the calls.
fn item(message: &Message, id: &str, [n_calls, n_results]: &mut [usize; 2]) -> ItemKind {
    let text = message.content.clone();
    let status = "completed";
    match message.role {
        Role::Assistant if !message.metadata.is_empty() => {
            *n_calls += 1;
            ItemKind::FunctionCall { call_id: format!("call_{id}_{n_calls}"), name: message.metadata.clone(), arguments: text, status }
        }
        Role::Observation => {
            *n_results += 1;
            ItemKind::FunctionCallOutput { call_id: format!("call_{id}_{n_results}"), output: text, status }
        }
        Role::Assistant => ItemKind::Message { role: "assistant", status, content: [ItemText::OutputText { text }] },
        Role::System => ItemKind::Message { role: "system", status, content: [ItemText::InputText { text }] },
        Role::User => ItemKind::Message { role: "user", status, content: [ItemText::InputText { text }] },
    }
}
