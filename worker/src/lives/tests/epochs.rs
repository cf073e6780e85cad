//! The epoch of a batch reaches the data set.

use super::*;

type Heard = Arc<Mutex<Vec<(Option<u64>, Vec<usize>)>>>;

/// Writes down what it is asked for.
struct Listening(Heard);

impl Dataset for Listening {
    fn fields(&self) -> Vec<Field> {
        Ones.fields()
    }

    fn len(&self, _: Split) -> usize {
        1000
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        assert_eq!(asked.split, Split::Train);
        let heard = (asked.epoch, asked.samples.to_vec());
        self.0.lock().unwrap().push(heard);
        Ones.batch(asked)
    }
}

struct Told {
    task: Box<dyn Task>,
    data: Arc<Listening>,
}

impl Task for Told {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        self.task.tensors()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.data) as Arc<dyn Dataset>
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        self.task.loss(batch)
    }

    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        self.task.measure(split)
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        self.task.evaluate()
    }
}

/// An epoch of 1000 samples has two batches of 400.
#[test]
fn a_batch_is_asked_for_with_its_epoch() {
    let heard = Heard::default();
    let task = Told {
        task: weighted(squares),
        data: Arc::new(Listening(heard.clone())),
    };
    let (.., ended) = train(Box::new(task), false, 5, &["train.batch=400"]);
    ended.unwrap();
    let heard = heard.lock().unwrap();
    let epochs: Vec<_> = heard.iter().map(|(epoch, _)| epoch.unwrap()).collect();
    assert_eq!(epochs[..6], [0, 0, 1, 1, 2, 2]);
    for epoch in heard[..6].chunks(2) {
        let [(_, first), (_, second)] = epoch else {
            panic!("{epoch:?}");
        };
        assert!(first.iter().all(|sample| !second.contains(sample)));
    }
}
