package records

// BoundBatchAnswer sets how many bytes the records in the answer to a batch have at most.
func (s *Records) BoundBatchAnswer(n int) { s.batchAnswer = n }
