package record

import (
	"fmt"
	"strings"
)

// AnswerText returns the error of an attempt that an endpoint refused: the status and the body of the answer.
func AnswerText(status int32, body []byte) string {
	return fmt.Sprintf(answerForm, status) + string(body)
}

const answerForm = "the endpoint answered %d: "

// AnswerIn returns the body of the answer that an error of AnswerText contains.
func AnswerIn(text string, status int32) (body string, found bool) {
	return strings.CutPrefix(text, fmt.Sprintf(answerForm, status))
}
