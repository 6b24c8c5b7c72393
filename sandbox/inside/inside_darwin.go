package inside

import "errors"

// soDomain is no option here; nothing is passed either, as there is no bubblewrap.
const soDomain = -1

func seal() {}

func pair() ([2]int, error) { return [2]int{}, errors.New("bubblewrap is Linux's") }
