//! What a user can get wrong: each is told with its code, its words and what mends it, and nothing
//! moves.
