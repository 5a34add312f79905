//! The twin (reference implementation) of the filters, in f64. The twin sorts all tokens and shares no code with the chain of filters.

use super::super::{Order, Sampling};

/// A token that may still be drawn.
#[derive(Clone, Copy)]
struct Token {
    id: usize,
    logit: f64,
}

/// Returns the probabilities, `[V]`, from which the settings `s` draw, without penalties. Only mirostat uses its limit `mu`.
pub(super) fn distribution(s: &Sampling, logits: &[f32], mu: f64) -> Vec<f64> {
    let t = f64::from(s.temperature);
    let finite = logits.iter().enumerate().filter(|(_, x)| x.is_finite());
    let mut list: Vec<Token> = finite.map(|(id, &x)| Token { id, logit: x.into() }).collect();
    let (mut filters, mut last): (Vec<Filter>, f64) = match s.order {
        Order::Pip => (vec![top_n_sigma, typical, top_p, top_k, min_p], t),
        Order::Hf => (vec![top_n_sigma, top_k, typical, top_p, min_p], 1.0),
    };
    if s.mirostat > 0.0 {
        (filters, last) = (Vec::new(), 1.0);
    }
    if s.mirostat > 0.0 || s.order == Order::Hf {
        list.iter_mut().for_each(|token| token.logit /= t);
    }
    for filter in filters {
        sort(&mut list);
        filter(s, &mut list);
    }
    sort(&mut list);
    if s.mirostat > 0.0 {
        let p = softmax(&list, 1.0);
        let n = p.iter().take_while(|p| -p.log2() <= mu).count();
        list.truncate(n.max(1));
    }
    let mut all = vec![0.0; logits.len()];
    for (token, p) in list.iter().zip(softmax(&list, last)) {
        all[token.id] = p;
    }
    all
}

type Filter = fn(&Sampling, &mut Vec<Token>);

/// Sorts by descending logit. Equal logits are sorted by ascending id.
fn sort(list: &mut [Token]) {
    list.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
}

fn softmax(list: &[Token], t: f64) -> Vec<f64> {
    let max = list.iter().map(|token| token.logit).fold(f64::MIN, f64::max);
    let p: Vec<f64> = list.iter().map(|token| ((token.logit - max) / t).exp()).collect();
    let total: f64 = p.iter().sum();
    p.into_iter().map(|p| p / total).collect()
}

fn top_n_sigma(s: &Sampling, list: &mut Vec<Token>) {
    if s.top_n_sigma == 0.0 {
        return;
    }
    let n = list.len() as f64;
    let mean = list.iter().map(|token| token.logit).sum::<f64>() / n;
    let deviation = (list.iter().map(|token| (token.logit - mean).powi(2)).sum::<f64>() / n).sqrt();
    let least = list[0].logit - f64::from(s.top_n_sigma) * deviation;
    list.retain(|token| token.logit >= least);
}

fn top_k(s: &Sampling, list: &mut Vec<Token>) {
    if s.top_k > 0 {
        list.truncate(s.top_k);
    }
}

fn typical(s: &Sampling, list: &mut Vec<Token>) {
    if s.typical == 1.0 {
        return;
    }
    let p = softmax(list, 1.0);
    let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
    let mut shifted: Vec<(f64, f64, Token)> = list.iter().zip(&p).map(|(token, p)| ((-p.ln() - entropy).abs(), *p, *token)).collect();
    shifted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.id.cmp(&b.2.id)));
    let mut sum = 0.0;
    let n = shifted.iter().position(|(_, p, _)| {
        sum += p;
        sum >= f64::from(s.typical)
    });
    shifted.truncate(n.map_or(usize::MAX, |n| n + 1));
    *list = shifted.into_iter().map(|(_, _, token)| token).collect();
}

fn top_p(s: &Sampling, list: &mut Vec<Token>) {
    if s.top_p == 1.0 {
        return;
    }
    let mut sum = 0.0;
    let last = softmax(list, 1.0).iter().position(|p| {
        sum += p;
        sum >= f64::from(s.top_p)
    });
    let Some(last) = last else { return };
    let (edge, is_pip) = (list[last].logit, s.order == Order::Pip);
    let mut place = 0;
    list.retain(|token| {
        place += 1;
        place <= last + 1 || is_pip && token.logit == edge
    });
}

fn min_p(s: &Sampling, list: &mut Vec<Token>) {
    let max = list[0].logit;
    list.retain(|token| (token.logit - max).exp() >= f64::from(s.min_p));
}
