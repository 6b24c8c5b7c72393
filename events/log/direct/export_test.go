package direct

import "time"

// SetAnswerTime sets how long readers wait for an answer, until restore is called.
func SetAnswerTime(d time.Duration) (restore func()) {
	before := answerTime
	answerTime = d
	return func() { answerTime = before }
}

// SetFarApart sets from how many sequences on few events are read alone, until restore is called.
func SetFarApart(n uint64) (restore func()) {
	before := farApart
	farApart = n
	return func() { farApart = before }
}
