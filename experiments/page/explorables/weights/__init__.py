"""Watch it learn: ten networks of two inputs, as they were trained or trained anew by the reader."""
