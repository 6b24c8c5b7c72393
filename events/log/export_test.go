package log

import "time"

// SetAnswerTime sets how long readers wait for an answer, until restore is called.
func SetAnswerTime(d time.Duration) (restore func()) {
	before := answerTime
	answerTime = d
	return func() { answerTime = before }
}
