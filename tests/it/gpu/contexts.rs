use std::thread;

use tch::{Device, Kind, Tensor};
use tradewind_worker::stream::{self, BatchMemory, Event, PageLocked, Stream};

use super::memory::device_of;
use super::played::{Call, Gpus, played};

/// Runs `work` on a thread that has not touched CUDA.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// A rank's GPU is one of several that it sees. A context on another one takes half a gigabyte there, and
/// fails where a GPU is one process's alone.
pub fn check(gpus: &Gpus, own: usize) {
    let contexts = gpus.contexts();
    let devices: Vec<_> = contexts.iter().map(|(device, _)| *device).collect();
    let calls = gpus.calls();
    let touches_others = |call: &&Call| {
        call.about.is_some_and(|about| about != own)
            && call.function != "cuDevicePrimaryCtxGetState"
    };
    let others: Vec<_> = calls.iter().filter(touches_others).take(9).collect();
    assert_eq!(
        devices,
        [own],
        "{contexts:?} of a rank on GPU {own}; it called {others:#?}"
    );
}

/// A rank on GPU `own` that has made a tensor there; what `work` does with it, on a thread that has not touched
/// CUDA, makes no context on another GPU.
fn touches_no_other_gpu(test: &str, own: u32, work: impl FnOnce(Device, Tensor) + Send) {
    played(&format!("gpu::contexts::{test}"), |gpus| {
        let device = device_of(own);
        assert_eq!(device, Device::Cuda(own as usize));
        let values = Tensor::from_slice(&[1f32, 2.0]).to_device(device);
        check(gpus, own as usize);
        elsewhere(move || work(device, values));
        check(gpus, own as usize);
    });
}

#[test]
fn of_events() {
    touches_no_other_gpu("of_events", 1, |device, _| {
        let event = elsewhere(|| Event::now(device).unwrap());
        elsewhere(|| Event::now(device).unwrap().block().unwrap());
        elsewhere(move || {
            event.wait().unwrap();
            elsewhere(move || drop(event));
        });
    });
}

#[test]
fn of_streams() {
    touches_no_other_gpu("of_streams", 1, |device, _| {
        let stream = elsewhere(|| Stream::new(device).unwrap());
        elsewhere(|| stream.enqueue(|| Ok(())).unwrap());
        elsewhere(|| stream.after(Event::now(device).unwrap()).unwrap());
        elsewhere(|| stream.event().unwrap().wait().unwrap());
        elsewhere(move || drop(stream));
    });
}

#[test]
fn of_copies() {
    touches_no_other_gpu("of_copies", 1, |device, values| {
        let stream = elsewhere(|| Stream::new(device).unwrap());
        let mut host = elsewhere(|| PageLocked::new(2, Kind::Float, device).unwrap());
        // SAFETY: waited for below, before it is read.
        let to = unsafe { host.tensor() }.shallow_clone();
        let from = values.shallow_clone();
        elsewhere(|| stream.enqueue(move || stream::copy(&to, &from)).unwrap());
        elsewhere(|| stream.event().unwrap().wait().unwrap());
        assert_eq!(host.f32(), [1.0, 2.0]);
        // SAFETY: it is only read.
        let from = unsafe { host.tensor() }.shallow_clone();
        let (to, used) = (values.shallow_clone(), values);
        elsewhere(|| {
            let each = move || stream::copy_each(&[to], &[from]);
            stream.enqueue(each).unwrap();
        });
        elsewhere(|| stream.enqueue(move || stream::in_use(&used)).unwrap());
        elsewhere(|| stream.event().unwrap().wait().unwrap());
        elsewhere(move || drop(host));
        let batch = elsewhere(|| BatchMemory::page_locked(64).unwrap());
        let tensor = elsewhere(move || batch.into_tensor().unwrap().to_device(device));
        elsewhere(move || drop(tensor));
    });
}

/// Autograd has a thread for every GPU.
fn backward(device: Device, values: Tensor) {
    let leaf = values.set_requires_grad(true);
    let same = leaf.shallow_clone();
    elsewhere(move || (&same * &same).sum(Kind::Float).backward());
    assert_eq!(leaf.grad().device(), device);
}

#[test]
fn of_backward() {
    touches_no_other_gpu("of_backward", 1, backward);
}

#[test]
fn of_backward_on_the_first_gpu() {
    touches_no_other_gpu("of_backward_on_the_first_gpu", 0, backward);
}
