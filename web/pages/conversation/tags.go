package conversation

import (
	"slices"
	"strings"

	"pocketcoder/projections/timeline"
)

// tagsOf returns the tags in a text, which has commas between them.
func tagsOf(text string) (tags []string) {
	for tag := range strings.SplitSeq(text, ",") {
		tag = strings.Join(strings.Fields(tag), " ")
		if tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// tagged returns the chats with a tag, at most as many as a list shows.
func tagged(chats []timeline.Chat, tag string) []timeline.Chat {
	chats = slices.DeleteFunc(chats, func(c timeline.Chat) bool { return !slices.Contains(tagsOf(c.Tags), tag) })
	return chats[:min(len(chats), maxChats)]
}

// tags returns the tags of the chats in the list, and the one by which it is narrowed.
func (l chatList) tags() (all []string) {
	for _, c := range l.chats {
		all = append(all, tagsOf(c.Tags)...)
	}
	if l.tag != "" {
		all = append(all, l.tag)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
