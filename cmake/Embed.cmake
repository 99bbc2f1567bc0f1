# cmake -DIN=file -DOUT=file.c -DNAME=symbol -P Embed.cmake: a file's bytes as a C array.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "extern const unsigned char ${NAME}[];\n_Alignas(16) const unsigned char ${NAME}[] = {\n${bytes}\n};\n")
string(LENGTH "${hex}" digits)
math(EXPR length "${digits} / 2")
file(APPEND ${OUT} "extern const unsigned long ${NAME}_bytes;\nconst unsigned long ${NAME}_bytes = ${length};\n")
