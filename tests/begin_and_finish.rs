//! Tests device work in separate calls: begin, poll, finish, drop. The results must equal the results of the methods that block.

use crate::null;
use crate::support::{adapter, caps, devices, golden, options, tiny, unwatched};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wingbeat::engine::{Engine, EngineOptions, Generation};
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Batcher, Done, Limits, Model, Options, Session, Snapshot, Text, TextId, TextSpec, TokenEvent};
use wingbeat::low_level::tape::{Caps, Class};

/// Returns a model on the null device, and the tiny RWKV-7 on the CPU. With an adapter, also returns the tiny RWKV-7 with GPU kernels.
fn models(folder: &std::path::Path) -> Vec<(&'static str, Model)> {
    let mut models = vec![("null", null::model(folder))];
    for device in devices() {
        let mut options = options(device);
        options.deterministic = true;
        if let Some(adapter) = adapter().filter(|_| *device == "gpu") {
            let base = Device::open(&adapter, true).unwrap();
            options.gpu = Some(unwatched(&base, caps(base.caps.clone(), Class::Groups)));
        }
        models.push((device, tiny(&options)));
    }
    models
}

/// Polls until `is_ready` returns `true`.
fn until(mut is_ready: impl FnMut() -> wingbeat::error::Result<bool>) {
    while !is_ready().unwrap() {
        std::thread::yield_now();
    }
}

fn keep(rows: &mut Vec<(usize, Vec<f32>)>, t: usize, row: &[f32]) -> wingbeat::error::Result<()> {
    rows.push((t, row.to_vec()));
    Ok(())
}

#[test]
fn begin_and_finish_return_what_blocking_methods_return() {
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> = golden().prompt(9, 1).iter().map(|id| id % 500).collect();
    for (device, model) in models(folder.path()) {
        let mut blocking = Session::new(&model, 2).unwrap();
        let slot = blocking.open().unwrap();
        let after_prompt = blocking.prefill(slot, &tokens).unwrap().to_vec();
        let mut scored = Vec::new();
        let other = blocking.open().unwrap();
        blocking.score(other, &tokens[..4], &mut |t, row| keep(&mut scored, t, row), &mut |_, _| ()).unwrap();
        let after_token = blocking.decode(slot, 7).unwrap().to_vec();

        let mut session = Session::new(&model, 2).unwrap();
        let slot = session.open().unwrap();
        let mut reading = session.begin_prefill(&[(slot, &tokens)]).unwrap();
        assert_eq!(reading.n_read(), [tokens.len()]);
        until(|| reading.is_ready());
        reading.finish().unwrap();
        assert!(session.logits(slot).unwrap() == after_prompt, "{device}");
        let other = session.open().unwrap();
        let mut found = Vec::new();
        let reading = session.begin_score(other, &tokens[..4]).unwrap();
        reading.finish_with(&mut |t, row| keep(&mut found, t, row)).unwrap();
        assert!(found == scored, "{device}");
        // A slot may be forked or closed while the device works.
        drop(session.begin_decode(&[(other, 3)]).unwrap());
        let fork = session.fork(slot);
        assert!(fork.is_err(), "two slots, both open");
        session.close(other).unwrap();
        let mut reading = session.begin_decode(&[(slot, 7)]).unwrap();
        until(|| reading.is_ready());
        reading.finish().unwrap();
        assert!(session.logits(slot).unwrap() == after_token, "{device}");
        assert!(session.begin_prefill(&[(slot, &[])]).is_err() && session.begin_decode(&[(other, 1)]).is_err());
    }
}

#[test]
fn tokens_of_dropped_work_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for (device, model) in models(folder.path()) {
        let mut session = Session::new(&model, 2).unwrap();
        let [a, b] = [(); 2].map(|()| session.open().unwrap());
        session.prefill(a, &[5, 6]).unwrap();
        session.prefill(b, &[5]).unwrap();
        drop(session.begin_decode(&[(b, 6)]).unwrap());
        assert_eq!((session.n_tokens(b).unwrap(), session.logits(b).unwrap().len()), (2, 0));
        // A snapshot that is dropped before it is complete changes nothing.
        drop(session.begin_snapshot(b).unwrap());
        session.decode_many(&[(a, 8), (b, 8)]).unwrap();
        assert!(session.logits(a).unwrap() == session.logits(b).unwrap(), "{device}");
        let mut copying = session.begin_snapshot(b).unwrap();
        until(|| copying.is_ready());
        let copy = copying.finish().unwrap();
        session.close(a).unwrap();
        let back = session.restore(&copy).unwrap();
        session.decode_many(&[(b, 9), (back, 9)]).unwrap();
        assert!(session.logits(back).unwrap() == session.logits(b).unwrap(), "{device}");
    }
}

fn job(prompt: &[u32], seed: u64) -> TextSpec {
    let mut limits = Limits::new(12);
    limits.stop_ids = Some(Vec::new());
    TextSpec::new(prompt.to_vec(), Sampler::new(Sampling { seed, ..Sampling::rwkv() }), limits)
}

/// Returns the texts of four jobs in three slots. The second job is cancelled, and the last job is added later. With `by_hand`, the steps are
/// begun, polled and finished in separate calls.
fn texts(model: &Model, by_hand: bool) -> HashMap<TextId, (Vec<u32>, String)> {
    let mut batcher = Batcher::new(Session::new(model, 3).unwrap());
    let ids: Vec<TextId> = (0..3).map(|i| batcher.add(job(&[10 + i, 20, 30][..1 + i as usize], i.into())).unwrap()).collect();
    let (mut ended, mut heard, mut n) = (HashMap::new(), HashMap::<TextId, Vec<u32>>::new(), 0);
    while ended.len() < 3 {
        let mut hear = |job: TextId, event: TokenEvent<'_>| heard.entry(job).or_default().extend(event.token);
        let cancel = |batcher: &mut Batcher| {
            let made = batcher.cancel(ids[1], &mut |_, _| ()).unwrap().unwrap();
            assert!(batcher.cancel(ids[1], &mut |_, _| ()).unwrap().is_none());
            made
        };
        let done: Vec<Done> = if by_hand {
            assert!(batcher.is_ready().unwrap() && batcher.finish_step(&mut hear).unwrap().is_empty(), "nothing is under way");
            batcher.begin_step().unwrap();
            let n_free = batcher.n_free();
            if n == 2 {
                let made: Text = cancel(&mut batcher);
                assert_eq!((made.reason().name(), batcher.n_running(), batcher.n_free()), ("interrupted", 2, n_free));
            }
            // Does nothing, because a step has already begun.
            batcher.begin_step().unwrap();
            until(|| batcher.is_ready());
            batcher.finish_step(&mut hear).unwrap()
        } else {
            if n == 2 {
                cancel(&mut batcher);
            }
            batcher.step(&mut hear).unwrap()
        };
        for done in done {
            let made = done.output.unwrap();
            ended.insert(done.id, (made.tokens, made.text));
        }
        n += 1;
        if n == 3 {
            assert_eq!(batcher.n_free(), 1);
            batcher.add(job(&[40, 50], 9)).unwrap();
        }
    }
    assert_eq!((batcher.n_running(), batcher.n_free()), (0, 3));
    assert!(ended.iter().all(|(job, (tokens, _))| heard[job] == *tokens));
    ended
}

#[test]
fn a_batch_by_begin_and_finish_has_the_same_texts() {
    let folder = tempfile::tempdir().unwrap();
    for (device, model) in models(folder.path()) {
        let (by_hand, blocking) = (texts(&model, true), texts(&model, false));
        if device == "null" {
            // The null device computes nothing, so its tokens are arbitrary and may differ between runs.
            assert!(by_hand.iter().all(|(job, (tokens, _))| tokens.len() == blocking[job].0.len()));
        } else {
            assert_eq!(by_hand, blocking, "{device}");
        }
    }
}

#[test]
fn awaiting_a_reading_completes() {
    let folder = tempfile::tempdir().unwrap();
    let model = null::model(folder.path());
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    let mut reading = session.begin_decode(&[(slot, 1)]).unwrap();
    // Outside of browsers, waiting blocks the thread, so one poll is enough.
    let polled = pin!(reading.ready()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
    reading.finish().unwrap();
}

#[test]
fn a_device_that_is_lost_during_a_step_is_one_error() {
    let mut devices = vec![{
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        Device::adopt(device, queue, Caps::plain(Class::Groups, 128 << 20), false)
    }];
    devices.extend(adapter().map(|adapter| Device::open(&adapter, false).unwrap()));
    for device in devices {
        let device = Arc::new(device);
        let mut options = Options::default();
        options.gpu = Some(device.clone());
        let model = tiny(&options);
        let mut batcher = Batcher::new(Session::new(&model, 2).unwrap());
        batcher.add(job(&[1, 2], 0)).unwrap();
        batcher.step(&mut |_, _| ()).unwrap();
        batcher.begin_step().unwrap();
        device.device.destroy();
        let e = batcher.finish_step(&mut |_, _| ()).unwrap_err();
        assert_eq!(e.kind, wingbeat::error::Kind::Device, "{e}");
        assert!(e.message.starts_with("cannot read the results back from the device: ") && e.message.len() < 120, "{e}");
        // All jobs end with the same error, and no further text arrives.
        let ended = batcher.step(&mut |_, event| panic!("{event:?}")).unwrap();
        assert!(ended.len() == 1 && ended[0].output.as_ref().is_err_and(|own| own.message == e.message));
        assert!(batcher.add(job(&[1, 2], 0)).is_ok() && batcher.step(&mut |_, _| ()).is_err());
    }
}

#[test]
fn a_handle_of_another_session_or_of_a_closed_slot_is_refused() {
    let model = tiny(&options("cpu"));
    let [mut one, mut two] = [(); 2].map(|()| Session::new(&model, 2).unwrap());
    let (a, b) = (one.open().unwrap(), two.open().unwrap());
    one.prefill(a, &[1, 2]).unwrap();
    for refused in [two.prefill(a, &[1]).err(), two.fork(a).err(), two.close(a).err(), two.logits(a).err(), two.snapshot(a).err()] {
        assert_eq!(refused.unwrap().message, "slot 0 cannot be used here: it belongs to another session");
    }
    two.close(b).unwrap();
    let c = two.open().unwrap();
    two.prefill(c, &[3]).unwrap();
    for refused in [two.decode(b, 1).err(), two.rewind(b, 0).err(), two.close(b).err(), two.n_tokens(b).err()] {
        assert_eq!(refused.unwrap().message, "slot 0 cannot be used: it was closed");
    }
    assert_eq!((two.n_tokens(c).unwrap(), one.n_tokens(a).unwrap()), (1, 2));
    let mut limits = Text::after(b, Sampler::new(Sampling::greedy(0)), &Limits::new(1));
    let e = two.continue_many(std::slice::from_mut(&mut limits), &mut |_| std::ops::ControlFlow::Continue(())).unwrap_err();
    assert_eq!(e.message, "slot 0 cannot be used: it was closed");
}

/// Checks `Send` and `Sync` at compile time.
#[test]
fn public_types_are_send_and_sync_as_promised() {
    const fn is_shared<T: Clone + Send + Sync>() {}
    const fn is_sent<T: Send>() {}
    const {
        is_shared::<Model>();
        is_shared::<Engine>();
        is_shared::<EngineOptions>();
        is_shared::<Snapshot>();
        is_shared::<wingbeat::low_level::session::Slot>();
        is_shared::<wingbeat::vocab::Vocab>();
        is_shared::<wingbeat::error::Error>();
        is_shared::<wingbeat::engine::Request>();
        is_shared::<wingbeat::engine::Event>();
        is_sent::<Session>();
        is_sent::<Batcher>();
        is_sent::<TextSpec>();
        is_sent::<Text>();
        is_sent::<Generation>();
    }
}
