"""What a terminal of a given width is shown."""

from liger_dev.screen import folded


def test_a_message_is_folded_between_words_and_beside_its_label():
    text = "liger-dev: it waits for a review\n  do:    liger-dev approve RUN --stage analyze\n    or   go on\n\nsaid"
    assert folded(text, 30).splitlines() == [
        "liger-dev: it waits for a",
        "  review",
        "  do:    liger-dev approve RUN",
        "         --stage analyze",
        "    or   go on",
        "",
        "said",
    ]
    assert folded("a_word_that_is_longer_than_the_width", 10) == "a_word_that_is_longer_than_the_width"
