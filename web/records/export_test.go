package records

// SetMaxBatchAnswer sets how many bytes the records in the answer to a batch have at most.
func (s *Records) SetMaxBatchAnswer(n int) { s.batchAnswer = n }
