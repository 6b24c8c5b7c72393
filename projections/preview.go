package projections

import (
	"regexp"
	"strings"
)

// maxPreview is the length of a preview in runes.
const maxPreview = 120

// maxPreviewLine bounds what is read of a line, in bytes. The marks of Markdown beyond it stay.
const maxPreviewLine = 4 * maxPreview

// previewOf returns the beginning of a text as one line of whole runes, without the marks of Markdown. It returns ""
// for a text without words.
func previewOf(text string) string {
	line := make([]rune, 0, maxPreview)
	inFence := false
	for l := range strings.Lines(text) {
		l = l[:min(len(l), maxPreviewLine)]
		switch fence := fenceMark.MatchString(l); {
		case fence:
			inFence = !inFence
			continue
		case !inFence:
			l = withoutMarks(l)
		}
		for word := range strings.FieldsSeq(l) {
			if len(line) > 0 {
				line = append(line, ' ')
			}
			if line = append(line, []rune(word)...); len(line) >= maxPreview {
				break
			}
		}
		if len(line) >= maxPreview {
			break
		}
	}
	if len(line) > maxPreview {
		line = append(line[:maxPreview-1], '…')
	}
	return string(line)
}

var (
	fenceMark  = regexp.MustCompile("^\\s*(```|~~~)[^`]*$")
	blockMarks = regexp.MustCompile(`^[\s>]*(#{1,6}\s+|[*+-]\s+(\[[ xX]\]\s+)?)?`)
	ruleMark   = regexp.MustCompile(`^\s*([-*_=|: ]+)\s*$`)
	codeSpan   = regexp.MustCompile("`+([^`]+)`+")
	linkMark   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)\s]*\)`)
	strongMark = regexp.MustCompile(`(?:~~|\b__)(\S(?:.*?\S)?)(?:~~|__\b)`)
	stressMark = regexp.MustCompile(`\*([^\s*](?:[^*]*[^\s*])?)\*`)
)

// withoutMarks returns a line of Markdown as text. Code keeps its characters.
func withoutMarks(line string) string {
	if ruleMark.MatchString(line) {
		return ""
	}
	line = line[len(blockMarks.FindString(line)):]
	if !strings.ContainsAny(line, "*_~`[") {
		return line
	}
	var code []string
	line = codeSpan.ReplaceAllStringFunc(line, func(span string) string {
		code = append(code, strings.Trim(span, "`"))
		return codeStandIn
	})
	line = linkMark.ReplaceAllString(line, "$1")
	line = strongMark.ReplaceAllString(line, "$1")
	for range 3 { // ***both***
		line = stressMark.ReplaceAllString(line, "$1")
	}
	for _, text := range code {
		line = strings.Replace(line, codeStandIn, text, 1)
	}
	return line
}

// codeStandIn stands for code while marks are removed. It is a noncharacter, which no text has.
const codeStandIn = "\ufdd0"
